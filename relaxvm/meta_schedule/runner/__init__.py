"""Runners: kernels to seconds, in a process of its own.

runner = ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(repeat=5))
(future,) = runner.run([ms.runner.RunnerInput(artifact_path, "cpu", args_info)])
future.result().run_secs
"""

from ...base import submodules as _submodules
from .config import EvaluatorConfig as EvaluatorConfig
from .config import RPCConfig as RPCConfig
from .local_runner import LocalRunner as LocalRunner
from .ray_runner import RayRunner as RayRunner
from .rpc_runner import RPCRunner as RPCRunner
from .runner import PyRunner as PyRunner
from .runner import PyRunnerFuture as PyRunnerFuture
from .runner import Runner as Runner
from .runner import RunnerFuture as RunnerFuture
from .runner import RunnerInput as RunnerInput
from .runner import RunnerResult as RunnerResult

create = Runner.create

__getattr__ = _submodules(__name__)
