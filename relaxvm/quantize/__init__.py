"""Post-training quantisation: a model of floats becomes one of integers.

Enters: a module and inputs that are like those it will see. Leaves: the module with products and
convolutions in 8 bits, and a report of what each layer of it costs and gains. Not done here: what
quantised operators mean (`relax.op.qnn`), and how they are put for those of floats between
`quantize` and `dequantize` (`FakeQuantizationToInteger`).
"""

from ..base import submodules as _submodules
from .config import QConfig as QConfig
from .config import current_qconfig as current_qconfig
from .config import qconfig as qconfig
from .costs import LayerCost as LayerCost
from .costs import SensitivityReport as SensitivityReport
from .costs import sensitivity as sensitivity
from .layers import Layer as Layer
from .layers import Layers as Layers
from .layers import prepared as prepared
from .observed import Observed as Observed
from .observed import observe as observe
from .pairs import annotate as annotate
from .pairs import calibrate as calibrate
from .pairs import quantize as quantize
from .pairs import realize as realize
from .ranges import Grid as Grid
from .ranges import grid_of as grid_of
from .ranges import kl_divergence as kl_divergence
from .ranges import percentile as percentile
from .ranges import weight_grid as weight_grid

__getattr__ = _submodules(__name__)
