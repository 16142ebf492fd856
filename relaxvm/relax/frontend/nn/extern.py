"""`ExternModule`: functions from elsewhere, called like operators.

    sort = nn.ExternModule({"env.sort": lambda x: nn.Tensor.placeholder(x.shape, x.dtype)})

    def forward(self, x):
        return sort["env.sort"](x)       # R.call_dps_packed("env.sort", (x,), ...)

The function itself is registered by who runs the program: `register_func("env.sort")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....base import FrontendError
from .op.call import extern


class ExternModule:
    """Functions by name.

    symbols  {name: what gives a placeholder (or several) of the outputs, for the arguments}
    """

    def __init__(self, symbols: Mapping[str, Callable[..., Any]]) -> None:
        for name, infer in symbols.items():
            if not isinstance(name, str) or not callable(infer):
                raise FrontendError(
                    "ExternModule: wanted {name: function that gives the outputs' placeholders}, "
                    f"got {name!r}: {infer!r}"
                )
        self.symbols = dict(symbols)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function `name` as something to apply to tensors and numbers."""
        infer = self.symbols.get(name)
        if infer is None:
            raise FrontendError(
                f"ExternModule: no function {name!r}; there are {', '.join(self.symbols)}"
            )

        def call(*args: Any) -> Any:
            return extern(name, list(args), infer(*args))

        call.__name__ = name
        return call
