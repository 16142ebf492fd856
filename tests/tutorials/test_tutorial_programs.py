"""Each program in `programs/` runs as it is and prints what it should."""

import pytest
from as_user import PROGRAMS, run


@pytest.mark.parametrize("program", sorted(p.stem for p in PROGRAMS.glob("*.py")))
def test_a_program_written_for_tvm_runs(program, tmp_path):
    done = run(PROGRAMS / f"{program}.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    printed = PROGRAMS / f"{program}.out"
    if printed.exists():
        assert done.stdout == printed.read_text(encoding="utf-8")
