"""An attribute of an operator for as long as a block runs."""

from __future__ import annotations

from typing import Any

from ...base import submodules
from ...ir import Op


class TempOpAttr:
    """``with TempOpAttr("nn.conv2d", "FTVMLegalize", f):``; afterwards it is what it was.

    Raises TIRError if there is no such operator.
    """

    def __init__(self, op_name: str, attr_key: str, attr_value: Any) -> None:
        self.op, self.key, self.value = Op.get(op_name), attr_key, attr_value
        self._before: dict[str, Any] = {}

    def __enter__(self) -> TempOpAttr:
        self._before = dict(self.op._more)
        self.op.set_attr(self.key, self.value)
        return self

    def __exit__(self, *_: Any) -> None:
        self.op.reset_attr(self.key)
        if self.key in self._before:
            self.op.set_attr(self.key, self._before[self.key])


__getattr__ = submodules(__name__)
