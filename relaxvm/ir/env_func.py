"""`EnvFunc`: a registered function as a value that IR holds and saves by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..base import VerifyError
from .node import Node, node


@node(interned=True)
class EnvFunc(Node):
    """The function registered under `name` (by `register_func`): saved as this name, looked up in
    the registry when it is called. Script text has no spelling for it: text calls nothing.
    """

    name: str

    @staticmethod
    def get(name: str) -> EnvFunc:
        """The one of that name. Raises VerifyError (a ValueError) if nothing is registered."""
        function = EnvFunc(name)
        if function._registered() is None:
            raise VerifyError(
                f"EnvFunc: nothing is registered under {name!r}; register_func does it"
            )
        return function

    @property
    def func(self) -> Callable[..., Any]:
        """The registered function. Raises VerifyError if there is none (any more)."""
        function = self._registered()
        return function if function is not None else EnvFunc.get(self.name).func

    def _registered(self) -> Callable[..., Any] | None:
        registry = importlib.import_module("relaxvm.runtime")
        return registry.get_global_func(self.name, allow_missing=True)

    def __call__(self, *args: Any) -> Any:
        return self.func(*args)
