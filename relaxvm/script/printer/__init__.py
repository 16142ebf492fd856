"""IR as script text.

Enters: any node, function or module, well formed or not. Leaves: text that the parser turns back
into the same IR. Printing never raises because of what the IR holds: error messages use it.
Not done here: reading text (`script`'s parser).
"""

from ...base import submodules as _submodules
from .entry import print_script as print_script
from .entry import read_metadata as read_metadata
from .entry import show_script as show_script

__getattr__ = _submodules(__name__)
