"""Jobs with `shim = true`: other people's scripts run in them without a container of their own."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from images import busybox
from processes import bareboat
from tools import executable

SCRIPT = """\
#!/bin/sh
# Scripts may set PATH anew.
export PATH=$BAREBOAT_SHIMS:/usr/bin:/bin
echo "passed on: $OF_THE_SHELL, set: $OF_THE_JOB"
singularity exec box echo in singularity
udocker run --location=box -w / any echo in udocker
srun --container-image=./none true
echo "srun: $?"
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "box").mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(busybox())) as archive:
        archive.extractall(folder / "box")
    executable(folder / "work.sh", SCRIPT)
    (folder / "job.toml").write_text(
        'command = ["./work.sh"]\nshim = "always"\n[environment]\nOF_THE_JOB = "yes"\n'
    )
    return folder


def test_a_script_finds_the_tools_and_the_shell_s_variables(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SHELL", "yes")
    code, out, err = bareboat("run", "job.toml", store=tmp_path / "store", cwd=work)
    assert code == 0, err
    assert [line for line in out.splitlines() if not line.startswith("run ")] == [
        "passed on: yes, set: yes", "in singularity", "in udocker", "srun: 1",
    ]  # fmt: skip
    assert "srun: error: " in err


def test_a_tool_that_is_there_has_priority_unless_asked(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin/singularity", "#!/bin/sh\necho the tool itself\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    for value, expected in (("true", "the tool itself"), ("always", "by the shim")):
        command = ["singularity", "exec", "box", "echo", "by the shim"]
        code, out, err = bareboat(
            "run", "--set", f"shim={value}", "--", *command, store=tmp_path / "store", cwd=work
        )
        assert (code, out.splitlines()[0]) == (0, expected), err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--engine", "bubblewrap"), "and engine is bubblewrap"),
        (("run", "--image", "debian:12"), "image has no effect"),
        (("prove",), "prove compares a container with bare metal"),
        (("run", "--set", "shim=perhaps"), 'it must be true, false or "always"'),
    ],
)
def test_what_contradicts_it_is_refused(
    work: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    code, _, err = bareboat(*words, "job.toml", store=tmp_path / "store", cwd=work)
    assert code == 2, err
    assert message in err
    assert "try: " in err
