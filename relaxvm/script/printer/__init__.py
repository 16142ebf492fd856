"""IR as script text.

Enters: any node, function or module, well formed or not. Leaves: text that the parser turns back
into the same IR. Printing never raises because of what the IR holds: error messages use it.
Not done here: reading text (`script`'s parser).
"""

from ...base import submodules
from .entry import print_script, read_metadata, show_script

__getattr__ = submodules(__name__)

__all__ = ["print_script", "read_metadata", "show_script"]
