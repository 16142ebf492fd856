"""`relay.qnn.transform`: from operators of quantised tensors to integer operators."""

from ...base import submodules
from ...relax import transform as graph
from ..transform.relay_pass import by_name

# In TVM one asks targets first; here both write the operators that every target takes.
CanonicalizeOps = by_name(graph.LegalizeQnn, 0, "CanonicalizeOps")
Legalize = by_name(graph.LegalizeQnn, 0, "Legalize")

__getattr__ = submodules(__name__)
