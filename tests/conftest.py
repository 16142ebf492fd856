"""Before relaxvm is imported: nodes are really frozen, the user's cache folder is left alone,
interrupts are heard.
"""

import atexit
import os
import shutil
import signal
import tempfile

# Started in the background by a shell, this process and those it starts would ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["RELAXVM_CHECKS"] = "1"
_cache = tempfile.mkdtemp(prefix="relaxvm-test-cache-")
os.environ["RELAXVM_CACHE_DIR"] = _cache
atexit.register(shutil.rmtree, _cache, ignore_errors=True)

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# The suite is the same every time; `--hypothesis-profile=explore` looks for new cases.
_common = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
settings.register_profile("repeatable", derandomize=True, print_blob=True, **_common)
settings.register_profile("explore", max_examples=1000, print_blob=True, **_common)
settings.load_profile("repeatable")


def pytest_generate_tests(metafunc):
    if metafunc.definition.get_closest_marker("vm_modes"):
        metafunc.parametrize("vm_mode", ["compiled", "bytecode"], indirect=True)


@pytest.fixture(autouse=True)
def vm_mode(request):
    """The mode in which the VMs of a test marked `vm_modes` run (see vm_modes.py); else None."""
    mode = getattr(request, "param", None)
    if mode is None:
        yield None
        return
    from vm_modes import default_mode

    with default_mode(mode):
        yield mode


@pytest.fixture
def tvm():
    """This package under TVM's names, for one test."""
    import relaxvm.as_tvm

    relaxvm.as_tvm.load_ipython_extension(None)
    yield relaxvm
    relaxvm.as_tvm.unload_ipython_extension(None)
