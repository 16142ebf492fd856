"""relaxvm as a backend of onnx's own conformance suite.

    python -m relaxvm.relax.frontend.onnx.backend [a part of the tests' names] [--interpret]

counts the official node tests that pass, by operator, and tells what stops the others.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....base import RelaxvmError
from ....ir import IRModule
from ....runtime import VirtualMachine, array, as_ndarray, cpu
from ...expr import Function
from ...interp import Evaluator
from ...struct_info import SequenceStructInfo, TupleStructInfo
from ...vm_build import build
from .graph import from_onnx
from .values import NeedsConstant

if TYPE_CHECKING:

    class _Backend: ...

    class _BackendRep: ...

else:
    try:
        from onnx.backend.base import Backend as _Backend
        from onnx.backend.base import BackendRep as _BackendRep
    except ImportError:
        _Backend = _BackendRep = object


class RelaxvmRep(_BackendRep):
    """A model, built. One that must know some inputs, or how long a sequence is, is built for what
    `run` gets, once for each.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        self.model = model
        self.options = options
        self._programs: dict[Any, Any] = {}
        # Inputs that the program is built for.
        self._fixed: tuple[str, ...] = ()
        weights = {t.name for t in model.graph.initializer}
        self._inputs = [i.name for i in model.graph.input if i.name not in weights]
        self._outputs = [o.name for o in model.graph.output]
        try:
            self._program({})
        except NeedsConstant as error:
            self._fix(error)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs as numpy arrays (of a sequence: lists of them), for inputs in the model's
        order, or by name.
        """
        if isinstance(inputs, dict):
            arguments = dict(inputs)
        else:
            items = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            arguments = dict(zip(self._inputs, items))
        if any(x is None for x in arguments.values()):
            self._fixed += tuple(
                n for n in arguments if arguments[n] is None and n not in self._fixed
            )
        while True:
            try:
                program, left = self._program({n: arguments[n] for n in self._fixed})
                break
            except NeedsConstant as error:
                self._fix(error)
        result = program(*(_argument(arguments[n]) for n in self._inputs if n in left))
        results = result if len(self._outputs) > 1 else [result]
        return tuple(map(_plain, results))

    def _fix(self, error: NeedsConstant) -> None:
        """Build for more inputs, those that `error` asks for; or raise it."""
        more = tuple(n for n in error.inputs if n not in self._fixed)
        if not more:
            raise error
        self._fixed += more

    def _program(self, fixed: dict[str, Any]) -> tuple[Any, set[str]]:
        """The program for these inputs, and the names of those that it is given when it runs."""
        constants = {n: x for n, x in fixed.items() if not isinstance(x, list)}
        shapes = {n: [np.shape(e) for e in x] for n, x in fixed.items() if isinstance(x, list)}
        key = (
            tuple(
                (
                    n,
                    None
                    if x is None
                    else (str(np.asarray(x).dtype), np.shape(x), np.asarray(x).tobytes()),
                )
                for n, x in constants.items()
            ),
            tuple((n, tuple(s)) for n, s in shapes.items()),
        )
        if key not in self._programs:
            mod = from_onnx(self.model, shapes, constants=constants)
            self._programs[key] = _prepared(mod, **self.options)
        return self._programs[key], set(self._inputs).difference(constants)


def _prepared(mod: IRModule, interpret: bool = False, exec_mode: str | None = None) -> Any:
    if interpret:
        evaluator = Evaluator(mod)
        main_function = mod["main"]
        assert isinstance(main_function, Function)
        info = main_function.ret_struct_info
        return lambda *args: _stored(evaluator("main", *args), info)
    executable = build(mod, "llvm", exec_mode=exec_mode)
    return VirtualMachine(executable, cpu(), exec_mode=exec_mode)["main"]


def _stored(value: Any, info: Any) -> Any:
    """What the evaluator gives, as runtime arrays."""
    if isinstance(info, SequenceStructInfo):
        return [_stored(v, info.element) for v in value]
    if isinstance(info, TupleStructInfo):
        return tuple(_stored(v, f) for v, f in zip(value, info.fields))
    return array(value, dtype=info.dtype)


def _argument(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_argument, value))
    return as_ndarray(np.asarray(value))


def _plain(value: Any) -> Any:
    """A result as the suite compares it."""
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    values = value.numpy()
    if value.dtype.is_bits:
        import ml_dtypes

        return values.view(getattr(ml_dtypes, str(value.dtype)))
    return values


class RelaxvmBackend(_Backend):
    """`onnx.backend.base.Backend` on relaxvm.

    Options of `prepare`: ``interpret=True`` runs what a module means, without building it;
    ``exec_mode`` is that of `relax.build`.
    """

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> RelaxvmRep:
        """Import and build a model."""
        return RelaxvmRep(model, **kwargs)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> Any:
        """The outputs of a model for these inputs."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is the CPU."""
        return device == "CPU"


prepare = RelaxvmBackend.prepare
run_model = RelaxvmBackend.run_model
supports_device = RelaxvmBackend.supports_device


# -- counting --------------------------------------------------------------------------------------


class ModelTest:
    """One of onnx's official tests."""

    def __init__(self, case: Any) -> None:
        self.case = case
        self.name: str = case.name

    def model(self) -> Any:
        """The ModelProto."""
        import onnx

        return self.case.model or onnx.load(pathlib.Path(self.case.model_dir) / "model.onnx")

    def data_sets(self, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
        """Inputs and outputs, as numpy arrays."""
        import onnx

        for data, results in self.case.data_sets or ():
            yield [_as_numpy(x) for x in data], [_as_numpy(x) for x in results]
        for folder in sorted(
            pathlib.Path(self.case.model_dir or "/nowhere").glob("test_data_set_*")
        ):
            sides = []
            for side in ("input", "output"):
                count = len(list(folder.glob(f"{side}_*.pb")))
                files = [folder / f"{side}_{i}.pb" for i in range(count)]
                sides.append([onnx.numpy_helper.to_array(onnx.load_tensor(f)) for f in files])
            yield sides[0], sides[1]

    def failure(self, **options: Any) -> str:
        """What is wrong with the answer, or an empty string."""
        try:
            model = self.model()
            rep = RelaxvmBackend.prepare(model, **options)
            for data, wanted in self.data_sets(model):
                got = rep.run(data)
                self.compare(wanted, got)
        except AssertionError as error:
            return "differs: " + " ".join(str(error).split())[:160]
        except RelaxvmError as error:
            return f"{type(error).__name__}: {' '.join(str(error.args[0]).split())[:200]}"
        except Exception as error:  # a fault of the importer, which is what is counted
            return f"FAULT {type(error).__name__}: {str(error)[:200]}"
        return ""

    def compare(self, wanted: Any, got: Any) -> None:
        """Raise AssertionError unless `got` is what is wanted, by the suite's own comparison."""
        from onnx.backend.test.runner import Runner

        assert len(wanted) == len(got), f"wanted {len(wanted)} values, got {len(got)}"
        for w, g in zip(wanted, got):
            if isinstance(w, (list, tuple)):
                # The suite asks tensors in a sequence for their length, which scalars lack.
                self.compare(w, g)
            elif "bernoulli" in self.name:
                # Its numbers are those of numpy's global generator on the day; the test says itself
                # that they are for information.
                assert (g.dtype, g.shape) == (w.dtype, w.shape), (g.dtype, g.shape)
                assert set(np.unique(g)) <= {0, 1}, g
            else:
                Runner.assert_similar_outputs([w], [g], self.case.rtol, self.case.atol)


def _as_numpy(value: Any) -> Any:
    """What a test gives: some of its tensors are messages."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def official_tests(kind: str = "node", part: str = "") -> list[ModelTest]:
    """The official tests of a kind that come with onnx, whose names contain `part`.

    kind  "node", "simple", "pytorch-converted" or "pytorch-operator"
    """
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind=kind)
    return [ModelTest(c) for c in cases if part in c.name]


def main(argv: Sequence[str] | None = None) -> int:
    """Count the tests that pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", default="", help="only tests whose name contains this")
    parser.add_argument("--kind", default="node", help="node, simple, pytorch-converted, ...")
    parser.add_argument("--interpret", action="store_true", help="what modules mean; no build")
    parser.add_argument("--exec-mode", default=None, choices=["bytecode", "compiled"])
    parser.add_argument("--every", type=int, default=1, help="only every so many-th test")
    args = parser.parse_args(argv)
    failures: dict[str, list[str]] = collections.defaultdict(list)
    totals: collections.Counter[str] = collections.Counter()
    for test in official_tests(args.kind, args.part)[:: args.every]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            failure = test.failure(interpret=args.interpret, exec_mode=args.exec_mode)
        # Tests of one operator are neighbours by their names' first words.
        group = "_".join(test.name.split("_")[1:2])
        totals[group] += 1
        if failure:
            failures[group].append(f"{test.name}: {failure}")
    for name, lines in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(f"{name}: {totals[name] - len(lines)} of {totals[name]}")
        for line in lines:
            print(f"    {line}")
    failed = sum(map(len, failures.values()))
    print(f"{totals.total() - failed} of {totals.total()} {args.kind} tests pass")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
