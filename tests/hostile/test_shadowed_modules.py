"""Python programs that Bareboat starts take no module of the working directory: others may have written it.

`python -c` and `python -m` look there first: a container, or a stranger in /tmp, could leave a `re.py`.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from tools import completed

from bareboat.launchers import image_mpirun, torchrun
from bareboat.mpi import checks, text
from bareboat.site_layer import wheels

NAMES = ("pip", "re", "json", "socket", "random", "argparse", "hashlib", "selectors", "shlex", "pathlib")

PROGRAMS = {
    "the MPI check": checks.command(sys.executable, size=2, timeout_s=1),
    "the relay of mpirun": (sys.executable, "-c", image_mpirun._RELAY, "--help"),
    "torchrun": (sys.executable, "-c", text.OWN_FIRST + torchrun._MEET + torchrun._MAIN, "0", "h", "1"),
    "pip of site layers": (*wheels._pip(), "--version"),
}


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory has modules with the names of Python's own, which leave a trace."""
    folder, trace = tmp_path / "here", tmp_path / "trace"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(
            f"open({str(trace)!r}, 'a').write('{name} ')\nraise SystemExit(9)\n"
        )
    monkeypatch.chdir(folder)
    return trace


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_takes_no_module_of_the_working_directory(program: str, trace: Path) -> None:
    words = [str(word) for word in PROGRAMS[program]]
    subprocess.run(words, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert not trace.exists(), trace.read_text()


def test_what_the_working_directory_alone_has_is_found(tmp_path: Path) -> None:
    """An mpi4py beside the job's script."""
    (tmp_path / "only_here.py").write_text("print('found')")
    text = checks.command(sys.executable, size=2, timeout_s=1)[2]
    begin = str(text).partition("\n\n")[0]
    done = completed([sys.executable, "-c", f"{begin}\nimport only_here"], cwd=tmp_path)
    assert done.stdout == "found\n", done.stderr
