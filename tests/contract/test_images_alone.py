"""bareboat_base and bareboat_images alone, in an environment with their three libraries and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from environments import site_packages
from registries import RealRegistry, pack, push
from tars import archive, file
from tools import output, tool

import bareboat_base
import bareboat_images
from bareboat_base.errors import UsageError
from bareboat_images.registry.options import Options
from bareboat_images.registry.pusher import open_pusher

#: Every module, and none of the packages that use them.
IMPORT_ALL = """
import importlib, pkgutil, sys
names = ["bareboat_base", "bareboat_images"]
for package in map(importlib.import_module, tuple(names)):
    names += (found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
for name in names:
    importlib.import_module(name)
others = {"bareboat", "bareboat_shim", "bareboat_study", "bareboat_meter"}
foreign = {name.partition(".")[0] for name in sys.modules} & others
assert not foreign, foreign
print(len(names))
"""
#: As a user of the library writes it.
TEN_LINES = """
import sys
from pathlib import Path
import bareboat_images as images
base, target, dockerfile = sys.argv[1:]
store = images.Store(Path("store"))
options = images.PullOptions(access=images.Access(plain_http=frozenset({base.partition("/")[0]})))
image = images.pull(base, store, options=options)
assert store.view(image).read("/etc/os-release", most=10_000) == b"ID=test\\n"
built = images.build(dockerfile, context=Path(dockerfile).parent, store=store, options=options)
assert images.save(built, store, "oci-archive:built.tar", options=options, rewrite=True)
assert store.view(built).names("/data").keys() == {"data"}
print(images.push(built, store, target, options=options).digest)
"""

Python = Callable[..., str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Runs a program in the environment."""
    environment = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = site_packages(environment)
    for library in ("msgspec", "isal", "zstandard"):
        for path in distribution(library).files or ():
            if ".." not in path.parts and path.suffix != ".pyc":
                (packages / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(str(path.locate())), packages / path)
    for package in (bareboat_base, bareboat_images):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, packages / source.name, ignore=shutil.ignore_patterns("__pycache__"))

    def run(program: str, *arguments: str | Path, cwd: Path | None = None) -> str:
        command = [environment / "bin" / "python", "-I", "-c", program, *arguments]
        home = {"HOME": str(cwd or environment), "PATH": os.environ["PATH"]}
        return output(*command, cwd=cwd, env=home).strip()

    return run


def test_every_module_is_imported_without_the_other_packages(python: Python) -> None:
    assert int(python(IMPORT_ALL)) > 200


def test_ten_lines_pull_read_build_and_push(python: Python, registry: RealRegistry, tmp_path: Path) -> None:
    options = Options(environment={"HOME": str(tmp_path)}, plain_http=True)
    push(
        open_pusher(registry.address, "base", options=options),
        pack(archive(file(b"etc/os-release", b"ID=test\n")), compressed=False),
        "1",
    )
    work = tmp_path / "work"
    work.mkdir()
    (work / "Dockerfile").write_text(f"FROM {registry.address}/base:1\nCOPY . /data/\nENV A=b\n")
    (work / "data").write_text("content\n")
    (work / "secret").write_text("content\n")
    (work / ".dockerignore").write_text("*\n!data\n")
    target = f"{registry.address}/made:1"
    digest = python(TEN_LINES, f"{registry.address}/base:1", target, work / "Dockerfile", cwd=work)
    inspect = [tool("skopeo"), "inspect", "--tls-verify=false", f"docker://{target}"]
    found = json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)
    assert found["Digest"] == digest
    assert "A=b" in found["Env"]
    inspect = [tool("skopeo"), "inspect", f"oci-archive:{work}/built.tar"]
    saved = json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)
    assert saved["Env"] == found["Env"]
    assert len(found["Layers"]) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda store: bareboat_images.pull(5, store),
        lambda store: bareboat_images.pull("oci:x", str(store.root)),
        lambda store: bareboat_images.pull("oci:x", store, options={}),
        lambda store: bareboat_images.build(None, context=None, store=store),
        lambda store: bareboat_images.build("x", context=[], store=store),
        lambda store: bareboat_images.push("x", store, "y"),
        lambda store: bareboat_images.save(None, store, "oci-archive:x"),
        lambda store: bareboat_images.save(None, store, b"x", rewrite=1),
        lambda store: bareboat_images.Store(str(store.root)),
        lambda _: bareboat_images.PullOptions(limits=5),
        lambda _: bareboat_images.PullOptions(machine=None),
    ],
)
def test_wrong_types_are_named(tmp_path: Path, call: Any) -> None:
    with pytest.raises(UsageError, match="not ") as caught:
        call(bareboat_images.Store(tmp_path / "store"))
    assert caught.value.remedy
