"""Search strategies: which candidates of a kernel are measured next, by what was measured so far.

context = ms.TuneContext(mod, target="llvm", search_strategy=ms.search_strategy.ReplayTrace())
context.pre_tuning(max_trials=20, num_trials_per_iter=8)
while (candidates := context.generate_measure_candidates()) is not None:
    context.notify_runner_results(candidates, [measured(c) for c in candidates])
context.post_tuning()
"""

from ...base import submodules as _submodules
from ..candidate import MeasureCandidate as MeasureCandidate
from .evolutionary_search import EvolutionarySearch as EvolutionarySearch
from .replay import ReplayFunc as ReplayFunc
from .replay import ReplayTrace as ReplayTrace
from .search_strategy import CountedStrategy as CountedStrategy
from .search_strategy import PySearchStrategy as PySearchStrategy
from .search_strategy import SearchStrategy as SearchStrategy

create = SearchStrategy.create

__getattr__ = _submodules(__name__)
