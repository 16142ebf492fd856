"""Values for a program's inputs: from files, from the command line, or made up."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base import LoadError
from ..runtime import (
    array,
    as_ndarray,
    dims,
    load_param_dict_from_file,
    made_up,
    nearest_names,
)
from ..runtime.sinfo import PrimInfo, TensorInfo, symbols_in
from .console import Console, few

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


def add_input_options(parser: argparse.ArgumentParser, size: int = 1, seeds: str = "") -> None:
    """What the model is given.

    size   of symbols of which nothing is said
    seeds  what else the seed is of
    """
    group = parser.add_argument_group("what the model is given")
    group.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE",
        help="@FILE.npy, @FILE.npz, @FILE.pb (a TensorProto), @IMAGE.png, random, zeros, ones, or "
        "a value in JSON; random where nothing is said",
    )  # fmt: skip
    group.add_argument(
        "--size", action="append", default=[], metavar="SYMBOL=N",
        help=f"the value of a symbol in the shapes of inputs that are made up; {size}",
    )  # fmt: skip
    group.add_argument("--seed", type=int, default=0, help=f"of random inputs{seeds}; 0")
    group.add_argument(
        "--weights", metavar="FILE", help="the inputs that `compile --weights separate` wrote"
    )


def inputs_of(
    arguments: argparse.Namespace,
    program: Any,
    console: Console,
    shapes: Mapping[str, Sequence[Any]],
    size: int = 1,
) -> dict[str, Any]:
    """{parameter of `main`: value}, in order.

    shapes  {parameter: shape}: sizes for symbols in it
    size    of symbols of which nothing is said
    """
    info = program.function("main")
    said: dict[str, str] = {}
    for text in arguments.input:
        name, equals, value = text.partition("=")
        if not equals:
            raise LoadError(f"--input: wanted NAME=VALUE, got {text!r}")
        if name not in info.param_names:
            # The importer makes names of a model Python's.
            name = re.sub(r"\W", "_", name)
        if name not in info.param_names:
            near = nearest_names(name, list(info.param_names))
            raise LoadError(f"--input: there is no input {name!r}{near}; {info.signature()}")
        said[name] = value
    symbols = dict.fromkeys(s for param in info.params for s in symbols_in(param))
    sizes = _sizes(arguments.size, list(symbols))
    params = dict(zip(info.param_names, info.params))
    for name, shape in shapes.items():
        param = params.get(re.sub(r"\W", "_", name))
        if param is None:
            raise LoadError(f"--shape: there is no input {name!r}; {info.signature()}")
        _learn(sizes, param, shape, f"--shape {name}")
    values: dict[str, Any] = {}
    if arguments.weights:
        values.update(load_param_dict_from_file(arguments.weights))
    for name, param in zip(info.param_names, info.params):
        text = said.get(name, "random")
        if text.startswith("@"):
            values[name] = _from_file(text[1:], name, param)
            _learn(sizes, param, np.shape(values[name]))
    rng = np.random.default_rng(arguments.seed)
    free = [s for s in symbols if s not in sizes]
    if free:
        console.note(f"{' = '.join(free)} = {size}; --size {free[0]}=N says otherwise")
    sizes = {**dict.fromkeys(free, size), **sizes}
    random = [n for n in info.param_names if n not in values and n not in said]
    if random:
        console.note(f"random: {few(random)}")
    for name, param in zip(info.param_names, info.params):
        if name not in values:
            values[name] = _said(said.get(name, "random"), name, param, sizes, rng)
    return {name: values[name] for name in info.param_names}


def _sizes(texts: Sequence[str], symbols: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not number.isdecimal() or len(number) > 18:
            raise LoadError(f"--size: wanted SYMBOL=N, got {text!r}")
        if name not in symbols:
            listed = few(symbols) or "none"
            raise LoadError(f"--size: no input has a symbol {name!r}; there are: {listed}")
        sizes[name] = int(number)
    return sizes


def _learn(sizes: dict[str, int], param: Any, shape: Sequence[Any], option: str = "") -> None:
    """Symbols get the sizes of an array, or of an option that has to fit."""
    wanted = param.shape if isinstance(param, TensorInfo) else None
    fits = wanted is not None and len(shape) == len(wanted)
    for dim, size in zip(wanted or (), shape) if fits else ():
        symbol = dims.is_symbol(dim)
        if symbol is not None and isinstance(size, int):
            sizes.setdefault(symbol, size)
        elif isinstance(dim, int) and dim != size:
            fits = False
    if option and not fits:
        raise LoadError(f"{option}: {list(shape)} does not fit {param}")


def _from_file(path: str, name: str, param: Any) -> Any:
    ending = os.path.splitext(path)[1].lower()
    try:
        if ending == ".npy":
            return np.load(path, allow_pickle=False)
        if ending == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                if name not in arrays and len(arrays.files) != 1:
                    raise LoadError(f"{path}: no array {name!r}; it has {', '.join(arrays.files)}")
                return arrays[name if name in arrays else arrays.files[0]]
        if ending == ".pb":
            return _from_proto(path)
    except (ValueError, EOFError) as error:
        raise LoadError(f"{path}: wanted an array: {error}") from error
    if ending in _IMAGES:
        return _from_image(path, name, param)
    raise LoadError(
        f"--input {name}: {path}: wanted .npy, .npz, .pb or an image ({', '.join(_IMAGES)})"
    )


def _from_proto(path: str) -> Any:
    import onnx
    import onnx.numpy_helper

    try:
        return onnx.numpy_helper.to_array(onnx.load_tensor(path))
    except OSError:
        raise
    except Exception as error:  # the class depends on which protobuf is installed
        raise LoadError(f"{path}: wanted a TensorProto: {error}") from error


def _from_image(path: str, name: str, param: Any) -> Any:
    """An image as the input wants it: [n, c, h, w] or [n, h, w, c] (c 1 or 3), scaled to its height
    and width; floats from 0 to 1, integers from 0 to 255.
    """
    try:
        import PIL.Image
    except ImportError as error:
        raise LoadError(f"--input {name}: images need the package pillow") from error
    shape = param.shape if isinstance(param, TensorInfo) and param.shape is not None else ()
    first = len(shape) == 4 and shape[1] in (1, 3)
    if len(shape) != 4 or not (first or shape[3] in (1, 3)):
        raise LoadError(
            f"--input {name}: an image is [n, 3, h, w] or [n, h, w, 3]; this is {param}"
        )
    channels: Any
    channels, size = (shape[1], shape[2:]) if first else (shape[3], shape[1:3])
    try:
        with PIL.Image.open(path) as file:
            picture = file.convert("L" if channels == 1 else "RGB")
    except PIL.UnidentifiedImageError as error:
        raise LoadError(f"{path}: wanted an image: {error}") from error
    wanted = [s if isinstance(s, int) else own for s, own in zip(size, picture.size[::-1])]
    picture = picture.resize((wanted[1], wanted[0]))
    pixels = np.asarray(picture).reshape(*wanted, channels)
    pixels = (pixels.transpose(2, 0, 1) if first else pixels)[None]
    kind = str(param.dtype)
    return (pixels / np.float32(255)).astype(kind) if "float" in kind else pixels.astype(kind)


def _said(
    text: str, name: str, param: Any, sizes: Mapping[str, int], rng: np.random.Generator
) -> Any:
    """The value that the text of an option stands for."""
    if text in made_up.FILLS:
        return made_up.value(f"--input {name}", param, sizes, rng, text)
    try:
        value = json.loads(text)
        if isinstance(param, PrimInfo):
            return value
        dtype = str(getattr(param, "dtype", None) or "float32")
        return array(np.asarray(value, None if "float" in dtype else dtype), dtype=dtype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise LoadError(
            f"--input {name}: wanted @FILE, random, zeros, ones or a value in JSON, got {text!r}: "
            f"{error}"
        ) from error


def plain(value: Any) -> Any:
    """A result as numpy arrays; tuples as lists."""
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return as_ndarray(value).numpy() if hasattr(value, "dtype") else np.asarray(value)


def named(results: Any, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """{name: array} of a result, as it is written to a file; parts of tuples are numbered."""
    if not isinstance(results, list):
        results = [results]
    flat: dict[str, np.ndarray] = {}
    for i, value in enumerate(results):
        name = names[i] if i < len(names) else f"output_{i}"
        if isinstance(value, list):
            for inner, part in named(value, [f"{name}_{k}" for k in range(len(value))]).items():
                flat[inner] = part
        else:
            flat[name] = value
    return flat
