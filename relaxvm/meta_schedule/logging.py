"""`ms.logging`: where tuning tells what it does: loggers of Python's, one for each kernel."""

from __future__ import annotations

import logging
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from logging import Logger

from ..base import submodules

_FORMAT = "%(asctime)s [%(levelname)s] %(message)s"


def get_logger(name: str) -> Logger:
    """A logger of Python's by its name."""
    return logging.getLogger(name)


def get_logging_func(logger: Logger | None) -> Callable[[int, str, int, str], None] | None:
    """A function of (level, file, line, message) that tells a logger; None for None."""
    if logger is None:
        return None

    def log(level: int, filename: str, lineno: int, msg: str) -> None:
        logger.log(level, "[%s:%d] %s", os.path.basename(filename), lineno, msg)

    return log


def get_loggers_from_work_dir(
    work_dir: str | os.PathLike[str], task_names: Sequence[str]
) -> list[Logger]:
    """A logger for each task, which writes to a file of its own in the folder `logs` of
    `work_dir`; nothing goes to the terminal.
    """
    folder = pathlib.Path(work_dir) / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    width = max(len(str(len(task_names) - 1)), 2)
    return [
        _to_file(folder / f"task_{k:0{width}d}_{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:100]}.log")
        for k, name in enumerate(task_names)
    ]


def _to_file(path: pathlib.Path) -> Logger:
    logger = logging.getLogger(f"relaxvm.meta_schedule.{path.resolve()}")
    if not logger.handlers:
        handler = logging.FileHandler(path, encoding="utf-8", delay=True)
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


__getattr__ = submodules(__name__)
