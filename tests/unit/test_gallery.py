"""The gallery: each example is whole, its job file is right, and `init --example` copies it or nothing."""

import ast
import json
import os
import re
import stat
import sys
import zipfile
from pathlib import Path

import pytest
from tools import output, tool

from bareboat import config, gallery, python_source
from bareboat.cli.main import main
from bareboat.gallery import EXAMPLES, Example
from bareboat.jobfile import read_job
from bareboat.project import world

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=EXAMPLES, ids=lambda example: example.name)
def example(request: pytest.FixtureRequest) -> Example:
    found: Example = request.param
    return found


def bareboat(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def settings(folder: Path) -> config.Settings:
    return config.resolve({}, folder=folder, environment=os.environ)


def test_every_directory_is_an_example_and_every_example_a_directory() -> None:
    top = Path(gallery.__file__).parent
    folders = {each.name for each in top.iterdir() if each.is_dir() and each.name != "__pycache__"}
    assert folders == {each.name for each in EXAMPLES}


def test_its_job_file_is_read(example: Example, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    gallery.copy(example, target)
    if example.name == "c-mpi":
        (target / "pi").write_text("compiled")
    if example.name == "r":
        tool("Rscript")  # whose directories it captures
    job = read_job(target / "job.toml", settings(tmp_path))
    assert job.name == example.name
    assert job.walltime_s
    assert job.topology.world_size == (1 if example.name in ("sweep", "preemptible") else 2)


def test_its_script_is_python_that_starts_as_its_job_says(example: Example) -> None:
    files = gallery.files(example)
    job = files["job.toml"].decode()
    for name, content in files.items():
        if not name.endswith(".py"):
            continue
        tree = ast.parse(content)
        assert ast.get_docstring(tree)
        assert f'"python", "{name}"' in job
        found = python_source.parse(content, uses=True)
        lists = files["requirements.txt"].decode()
        for package in found.packages - set(sys.stdlib_module_names):
            assert package in lists, package
        judged = world.judge(found)
        alone = example.name in ("sweep", "preemptible")
        assert bool(judged.launchers) != alone, judged
        given = re.findall(r'"([^"]*)"', job.split("command = ")[1].splitlines()[0])
        assert all(f'"{word}"' in content.decode() for word in given if word.startswith("--"))


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = bareboat(capsys, "init", "--example")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [each.name for each in EXAMPLES]
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = bareboat(capsys, "init", "--example", "--json")
    assert [each["name"] for each in json.loads(out)] == [each.name for each in EXAMPLES]


def test_a_copy(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = bareboat(capsys, "init", "--example", example.name)
    assert code == 0, err
    target = tmp_path / example.name
    assert out.startswith(f"copied {example.name} to {target}")
    assert {each.name: each.read_bytes() for each in target.iterdir()} == gallery.files(example)
    umask = os.umask(0o022)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o777 & ~umask
    assert sorted(tmp_path.glob(".*")) == []
    assert [line.strip() for line in err.splitlines()][:2] == ["next:", f"cd {example.name}"]
    assert f"  {example.install}\n" in err or not example.install


def test_a_copy_into_an_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a b"
    target.mkdir()
    code, _, err = bareboat(capsys, "init", "--example", "jax", "-o", str(target))
    assert code == 0
    assert (target / "train.py").exists()
    assert f"cd '{os.path.relpath(target)}'" in err


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: (path.mkdir(), (path / "x").touch()), "is not empty"),
        (lambda path: path.touch(), "already exists"),
        (lambda path: path.symlink_to("nowhere"), "already exists"),
        (lambda path: os.mkfifo(path), "already exists"),
    ],
    ids=["files", "a file", "a link", "a FIFO"],
)
def test_nothing_is_overwritten(
    make: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "there"
    make(target)  # type: ignore[operator]
    before = [(each, os.lstat(each).st_mtime_ns) for each in sorted(tmp_path.rglob("*"))]
    code, out, err = bareboat(capsys, "init", "--example", "jax", "-o", str(target))
    assert (code, out) == (2, "")
    assert message in err
    assert [(each, os.lstat(each).st_mtime_ns) for each in sorted(tmp_path.rglob("*"))] == before


def test_a_copy_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "train.py":
            raise OSError(28, "No space left on device", str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    code, out, err = bareboat(capsys, "init", "--example", "jax", "-o", str(tmp_path / "made"))
    assert (code != 0, out) == (True, "")
    assert code != 70, err
    assert "\n  try: " in err
    assert [each for each in tmp_path.iterdir() if each.name != "store"] == []


def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    build = (
        "import sys; from hatchling.builders.wheel import WheelBuilder as Builder; "
        "print(*Builder(sys.argv[1]).build(directory=sys.argv[2]))"
    )
    with zipfile.ZipFile(output(sys.executable, "-c", build, ROOT, tmp_path).strip()) as wheel:
        for each in EXAMPLES:
            for name, content in gallery.files(each).items():
                assert wheel.read(f"bareboat/gallery/{each.name}/{name}") == content
