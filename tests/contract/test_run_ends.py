"""What a run leaves at its end: no daemon, and a word about files that its container discards."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from processes import command
from tools import tool

WRITES = """\
import os, time
time.sleep(0.5)
for path in map(os.path.expanduser, ("/tmp/result.bin", "~/kept.txt", "~/.cache/x", "here.txt")):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    open(path, "w").write("x" * (5000 if path.startswith("/tmp") else 10))
"""
#: In a session of its own, and a child of nobody.
DAEMON = """\
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("daemon", "w").write(str(os.getpid()))
        os.closerange(0, 100)
        time.sleep(300)
    os._exit(0)
os.wait()
time.sleep(0.5)
"""


def write(folder: Path, python: Path, script: str) -> None:
    (folder / "script.py").write_text(script)
    (folder / "job.toml").write_text(f'command = ["{python}", "script.py"]\n[capture]\npython = "{python}"\n')


def run(folder: Path, python: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    write(folder, python, script)
    words = command("run", "--store", python.parents[2] / "store", *options, "job.toml")
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_files_of_a_working_directory_over_the_home_are_kept_and_not_named(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home's own overlay is below the mount of the working directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    script = "import time\nopen('kept.txt', 'w').write('x' * 10)\ntime.sleep(0.7)\n"
    done = run(tmp_path, python, script, "--engine", "bubblewrap")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "kept.txt").read_text() == "x" * 10
    assert "discarded" not in done.stderr


@pytest.mark.parametrize("engine", ["bubblewrap", "apptainer", "charliecloud", "udocker"])
def test_files_that_vanish_with_the_container_are_named(tmp_path: Path, python: Path, engine: str) -> None:
    tool({"bubblewrap": "bash", "charliecloud": "ch-run", "udocker": "proot"}.get(engine, engine))
    done = run(tmp_path, python, WRITES, "--engine", engine)
    home = os.path.expanduser("~")
    found = f"2 files (5.0 kB) discarded with the container: /tmp/result.bin (5.0 kB), {home}/kept.txt (10 B)"
    assert (done.returncode, f"bareboat: {found}\n" in done.stderr) == (0, True), done.stderr
    assert "try: write to the working directory, or to a directory under mounts" in done.stderr
    words = command("status", "--store", python.parents[2] / "store", "--json")
    (told,) = json.loads(subprocess.check_output(words))[-1:]
    assert told["discarded"] == "2 files discarded with the container"
    assert (tmp_path / "here.txt").exists()
    quiet = run(tmp_path, python, "import time; time.sleep(0.3)", "--engine", engine, "-v")
    assert "+ bash" in quiet.stderr
    assert "discarded" not in quiet.stderr, quiet.stderr
    # No program is started to count none. Apptainer has files of its own there.
    assert "show_kept" not in quiet.stderr or engine == "apptainer"


def test_files_of_the_shortest_program_are_named(tmp_path: Path, python: Path) -> None:
    (tmp_path / "job.toml").write_text(
        f'command = ["/bin/cp", "job.toml", "/tmp/x"]\n[capture]\npython = "{python}"\n'
    )
    words = command("run", "--store", python.parents[2] / "store", "--engine", "bubblewrap", "job.toml")
    for _ in range(5):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
        assert "1 file (" in done.stderr, done.stderr


def test_a_program_of_a_pipeline_that_the_environment_lacks_is_named(tmp_path: Path, python: Path) -> None:
    words = command("run", "--store", python.parents[2] / "store", "--python", python, "--", "sh", "-c")
    done = subprocess.run(
        [*words, "shuf x | sort"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert 'starts shuf, not in the container: set programs = ["shuf"] under [capture]' in done.stderr


def test_a_daemon_ends_with_a_script_that_succeeds(tmp_path: Path, python: Path) -> None:
    """Without Bareboat, as in a scheduler's job."""
    write(tmp_path, python, DAEMON)
    words = command("plan", "--script", "--engine", "native", "--store", tmp_path / "store", "job.toml")
    script = subprocess.run(words, cwd=tmp_path, capture_output=True, check=True).stdout
    done = subprocess.run(["bash"], input=script, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    daemon = Path(f"/proc/{(tmp_path / 'daemon').read_text()}/cmdline")
    assert not daemon.exists() or not daemon.read_bytes()  # a zombie has none


@pytest.mark.parametrize("name", ["data/data.csv", "{folder}/data.csv", "{folder}/none.csv"])
def test_a_file_of_the_host_that_the_container_lacks_is_named(
    tmp_path: Path, python: Path, name: str
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "data.csv").write_text("1\n")
    (tmp_path / "work" / "data").symlink_to(tmp_path)
    script = f"open({name.format(folder=tmp_path)!r})"
    done = run(tmp_path / "work", python, script, "--engine", "bubblewrap", "--json")
    remedy = json.loads(done.stdout)["end"]["remedy"]
    flag = f"""--set 'mounts=["{tmp_path}/data.csv"]': """
    assert remedy.startswith(f'mounts = ["{tmp_path}/data.csv"], or {flag}') is ("none" not in name)


@pytest.mark.parametrize(
    "error",
    [
        "OSError(30, 'Read-only file system', '{}/new')",
        "RuntimeError('Parent directory {}/new does not exist.')",
    ],
)
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, python: Path, error: str) -> None:
    script = f"raise {error.format(tmp_path)}\n"
    (tmp_path / "work").mkdir()
    done = run(tmp_path / "work", python, script, "--engine", "bubblewrap", "--json")
    remedy = 'mounts = ["T/new:rw"], or --set \'mounts=["T/new:rw"]\', after: mkdir T/new'.replace(
        "T", str(tmp_path)
    )
    assert json.loads(done.stdout)["end"]["remedy"] == remedy
