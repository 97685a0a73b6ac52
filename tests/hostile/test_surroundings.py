"""Whatever directories, descriptors, limits and permissions Bareboat is started with: one clear message, an
exit code that is true, and no damage to what is kept."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import fake_digest, make_image, make_study
from matrices import keep, of_pair
from tools import completed, started

from bareboat.cli.main import main
from bareboat_base import codec
from bareboat_base.files import outputs
from bareboat_images.store import Store

BAREBOAT = f'"{sys.executable}" -P -m bareboat'


def shell(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of sh in which `bareboat` is this Bareboat."""
    done = completed(
        ["/bin/sh", "-c", f'bareboat() {{ {BAREBOAT} "$@"; }}\n{script}'],
        cwd=folder,
        env={**os.environ, "BAREBOAT_STORE": str(folder / "store"), "HOME": str(folder), **environment},
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    assert "this is a bug" not in done.stderr, done.stderr
    return done


def refused(done: subprocess.CompletedProcess[str], *words: str, code: int | None = None) -> None:
    """One message, with these words and a remedy."""
    assert 0 < done.returncode < 64, done
    assert code in (None, done.returncode), done
    assert done.stderr.count("bareboat: ") == 1, done.stderr
    assert "\n  try: " in done.stderr, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize(
    "words", ["--version", "--help", "run --help", "config", "config --json", "report --json"]
)
def test_a_result_that_cannot_be_written_is_an_error(tmp_path: Path, words: str) -> None:
    refused(shell(f"bareboat {words} >/dev/full", tmp_path), "standard output", "No space left", code=1)
    refused(shell(f"bareboat {words} >&-", tmp_path), "standard output", "closed", code=1)


@pytest.mark.parametrize("flags", ["", "--json", "-f"])
def test_a_run_s_output_that_cannot_be_written_is_not_the_run_s_fault(tmp_path: Path, flags: str) -> None:
    run = "bareboat run --engine native -- echo hello"
    assert shell(f"{run} | cat", tmp_path).returncode == 0
    refused(shell(f"bareboat logs {flags} echo >/dev/full", tmp_path), "standard output", "No space", code=1)
    assert "hello" in shell(f"bareboat logs {flags} echo", tmp_path).stdout


def test_notes_that_cannot_be_written_are_not_silence(tmp_path: Path) -> None:
    assert shell("bareboat report 2>/dev/full", tmp_path).returncode == 1
    assert shell("bareboat report 2>&-", tmp_path).returncode == 0
    assert shell("bareboat nonsense 2>/dev/full", tmp_path).returncode == 2
    assert shell("bareboat nonsense 2>&-", tmp_path).returncode == 2


@pytest.mark.parametrize(
    "closed",
    [c for n in (1, 2, 3) for c in itertools.combinations((0, 1, 2), n)],
    ids=lambda c: "".join(map(str, c)),
)
def test_no_file_of_the_store_gets_a_standard_descriptor(tmp_path: Path, closed: tuple[int, ...]) -> None:
    closing = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    shell(f"bareboat run --engine native -- sh -c 'echo output; echo errors >&2' {closing}", tmp_path)
    (folder,) = (tmp_path / "store/runs").iterdir()
    record = json.loads((folder / "record.json").read_text())
    assert record["exit_code"] in (0, 1, 2, 141)  # 141: nobody reads what it prints
    assert (tmp_path / "store/version").read_text() == "2\n"
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file() and path.suffix != ".sh" and path.name != "output.log":
            data = path.read_bytes()
            assert not data.startswith((b"output", b"errors", b"bareboat: ", b"run "))


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = "mkdir gone && cd gone && rmdir ../gone && "
    for words in (
        "config", "doctor", "report", "image ls", "status", "config --store /tmp",
    ):  # fmt: skip
        assert shell(f"{gone} bareboat {words}", tmp_path).returncode == 0, words
    for words in (
        "run --engine native -- true",
        "plan --engine native -- true",
        "config trust x",
        "image pull oci:x",
        "image capture --save x.tar",
        "report x -o x.html",
        "config --store x",
    ):
        refused(shell(f"{gone} bareboat {words}", tmp_path), "working directory")


@pytest.mark.parametrize(
    ("make", "words", "said"),
    [
        ("echo > store", "image ls", "is not a directory"),
        ("echo > store", "run --engine native -- true", "is not a directory"),
        ("mkdir store && chmod 0 store", "image ls", "may not use the store"),
        ("mkdir -pm 700 store store/tmp && echo 2 > store/version && chmod 0 store/version",
         "run --engine native -- true", "may not use the store"),
        ("mkdir -pm 700 store store/runs && echo 2 > store/version && chmod 0 store/runs", "report",
         "may not use the store"),
        ("mkdir -p .config/bareboat; echo > .config/bareboat/site.toml; chmod 0 .config/bareboat/*", "config",
         "site.toml"),
        ("mkdir -p .config/bareboat && chmod 0 .config/bareboat", "config", "site.toml"),
        ("mkdir .config && chmod 500 .config", "config trust .", ".config/bareboat"),
        ("echo > .config", "config trust .", ".config"),
        ("mkdir job.toml", "run job.toml", "job.toml"),
        ("ln -s job.toml job.toml", "run job.toml", "job.toml"),
        ("true", f"run {'x' * 300}.toml", "too long"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path: Path, make: str, words: str, said: str) -> None:
    script = f"{make}; bareboat {words}; code=$?; chmod -R u+rwX .; exit $code"
    refused(shell(script, tmp_path, XDG_CONFIG_HOME=""), said)


@pytest.mark.parametrize(
    ("limit", "words", "said"),
    [
        ("ulimit -f 0", "run --engine native -- true", "limit on file sizes"),
        ("ulimit -n 8", "run --engine native -- true", "too many files"),
    ],
)
def test_a_limit_of_the_process_is_named(tmp_path: Path, limit: str, words: str, said: str) -> None:
    refused(shell(f"{limit}; bareboat {words}", tmp_path), said, code=1)


def test_few_files_and_little_memory_are_enough_for_small_things(tmp_path: Path) -> None:
    for limit in ("ulimit -n 16", "ulimit -v 3000000"):
        for words in ("config", "report"):
            assert shell(f"{limit}; bareboat {words}", tmp_path).returncode == 0, (limit, words)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("folder", "is a directory"),
        ("nowhere/x", "does not exist"),
        ("file/x", "is a file, not a directory"),
        ("locked/x", "cannot be written"),
        ("pipe", "not a regular file"),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        "prove --engine native -o {} -- true",
        "report none -o {}",
        "image capture --save {}",
        "image save none {}",
        "image show --sbom spdx none -o {}",
        "image lint none -o {}",
        "image save none oci-archive:{}",
    ],
)
def test_outputs_are_checked_before_the_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    output: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "locked").mkdir(mode=0o500)
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    assert main([word.format(output) for word in words.split()]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "\n  try: " in told
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "words",
    [
        "image capture --save {}",
        "image save none {}",
        "image save none sif:{}",
        "image show --sbom spdx none -o {}",
        "image lint none -o {}",
        "doctor --export {}",
    ],
)
def test_a_file_that_is_there_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    (tmp_path / "file").write_text("mine")
    assert main([word.format("file") for word in words.split()]) == 2
    assert "already exists" in (told := capsys.readouterr().err)
    assert "rm " in told
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    [
        "init file.py -o file.py --force",
        "init --from file.sh -o file.sh --force",
        "image init --from requirements.txt -o requirements.txt --force",
    ],
)
def test_force_replaces_nothing_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    texts = {
        "file.py": "import os\n",
        "file.sh": "#!/bin/bash\n#SBATCH -N1\npython a.py\n",
        "requirements.txt": "numpy\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert main(words.split()) == 2
    assert "what this command reads" in capsys.readouterr().err
    assert {name: (tmp_path / name).read_text() for name in texts} == texts


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    def write(name: str) -> subprocess.Popen[str]:
        code = "import pathlib, sys, time; from bareboat_base.files import outputs\n"
        code += "with outputs.beside(pathlib.Path(sys.argv[1])): print(flush=True); time.sleep(60)"
        return started([sys.executable, "-c", code, str(tmp_path / name)])

    killed, alive = write("t"), write("t")
    for each in (killed, alive):
        assert each.stdout is not None
        each.stdout.readline()
    killed.kill()
    killed.communicate()
    for left in tmp_path.iterdir():
        os.utime(left, (1, 1))
    outputs.write(tmp_path / "t", b"new")
    assert len(list(tmp_path.iterdir())) == 2  # the file, and what the other writes
    alive.kill()
    alive.communicate()


@pytest.mark.parametrize("words", ["image pull oci:nowhere", "image load nowhere", "image capture"])
def test_a_name_is_checked_before_the_work(capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert main([*words.split(), "--name", "a/b"]) == 2
    assert "'a/b' is not a valid image name" in capsys.readouterr().err


def test_a_damaged_entry_costs_its_own_line(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    bad, good = fake_digest("a"), fake_digest("b")
    store.write(store.entry(bad), b"{}")
    store.write(store.entry(good), codec.to_json(make_image(digest=good)))
    store.write(store.root / "pins/x.json", b"nothing")
    store.write(store.site("slurm-debug"), b"[")
    done = shell("bareboat image ls", tmp_path)
    assert done.returncode == 4
    (line,) = [line for line in done.stdout.splitlines() if "damaged" in line]
    assert "aaaaaaaa" in line
    assert "bbbbbbbb" in done.stdout
    assert "ignored a damaged pin" in done.stderr
    told = json.loads(shell("bareboat image ls --json", tmp_path).stdout)
    assert [len(told[key]) for key in ("images", "damaged", "pins")] == [1, 1, 0]
    (tmp_path / ".config/bareboat").mkdir(parents=True)
    (tmp_path / ".config/bareboat/site.toml").write_text("partition = [")
    done = shell("bareboat doctor", tmp_path, XDG_CONFIG_HOME="")
    assert "ready: " in done.stdout
    assert "slurm-debug.json" in done.stderr
    assert "site.toml" in done.stderr
    assert done.returncode != 0


def test_a_damaged_run_is_listed_among_others(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    runs = [store.new_run(name) for name in ("first", "second", "third")]
    for run_id in runs:
        matrix, studies, _ = of_pair(make_study(id=run_id), ())
        keep(store, matrix, [[]], studies)
        if run_id == runs[1]:
            store.write(store.run(run_id) / "matrix.json", b"{")
    done = shell("bareboat report --json", tmp_path)
    assert done.returncode == 4
    found = json.loads(done.stdout)
    assert [each["run_id"] for each in found] == runs
    assert [each["damaged"] for each in found] == [False, True, False]
    lines = shell("bareboat report", tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines if line[:1].strip()] == ["run", *runs]
    assert "restore it from a backup" in shell(f"bareboat report {runs[1]}", tmp_path).stderr
