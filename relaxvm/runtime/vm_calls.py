"""Calls of a virtual machine under the names that Relay's programs know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import Deferred, VMValueError

if TYPE_CHECKING:
    from . import timing
    from .timing import BenchmarkResult
else:
    timing = Deferred("relaxvm.runtime.timing")


class RelayCalls:
    """What a `VirtualMachine` has of them."""

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call `func_name` on these arguments; without any, on those of `set_input`."""
        vm: Any = self
        if args or kwargs or func_name not in vm._inputs:
            return vm[func_name](*args, **kwargs)
        vm.invoke_stateful(func_name)
        return vm.get_outputs(func_name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``main``; see `invoke`."""
        return self.invoke("main", *args, **kwargs)

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The place of a parameter. Raises VMValueError listing those that exist."""
        vm: Any = self
        names = vm.executable.function(func_name).param_names
        if input_name not in names:
            raise VMValueError(
                f"{func_name} has no parameter {input_name!r}; it has: {', '.join(names) or 'none'}"
            )
        return int(names.index(input_name))

    def benchmark(
        self,
        device: Any,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        end_to_end: bool = False,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """How long a call takes; in `kwargs`, options as in `timing.measure` too. `end_to_end`
        would add copies to and from the device: none.
        """
        options = timing.options_in(kwargs, repeat=repeat, number=number)
        return timing.measure(lambda: self.invoke(func_name, *args, **kwargs), **options)
