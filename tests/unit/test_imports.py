"""The modules that a job's Python program imports and its container does not have, found before the start."""

from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site

from bareboat.model import AbsentModule, CodeFacts, Job, Scheduling
from bareboat.plan import plan
from bareboat.program_analysis import imports
from bareboat.program_analysis.command import Sight
from bareboat_images.store import Store

pytestmark = pytest.mark.usefixtures("tree")

ENV, SYSTEM = "opt/env/lib/python3.11", "usr/lib/python3.11"
FILES = {
    f"{SYSTEM}/os.py": "",
    f"{SYSTEM}/lib-dynload/_bz2.cpython-311-x86_64-linux-gnu.so": "",
    "usr/bin/python3.11": "",
    "usr/bin/nice": "",
    "usr/bin/sh": "",
    "usr/lib/python3/dist-packages/apt/__init__.py": "",
    "usr/local/lib/python3.11/dist-packages/local.py": "",
    "opt/env/bin/pip": "",
    "opt/env/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\n",
    f"{ENV}/site-packages/numpy/__init__.py": "",
    f"{ENV}/site-packages/compiled.cpython-311-x86_64-linux-gnu.so": "",
    f"{ENV}/site-packages/_distutils_hack/__init__.py": "",
    f"{ENV}/site-packages/space/part/deep.py": "",
    f"{ENV}/site-packages/paths.pth": "# own\n/work/other\n",
    f"{ENV}/site-packages/distutils-precedence.pth": "import os; var = 1",
}
WORK = {
    "helper.py": "",
    "gone.py": "",
    "given/shown.py": "",
    "other/others.py": "",
}


def write(top: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(text.encode(errors="surrogateescape"))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tree, work = tmp_path / "tree", tmp_path / "work"
    write(tree, FILES)
    write(work, WORK)
    (tree / "opt/env/bin/python").symlink_to("/usr/bin/python3.11")
    sight = Sight([tree], mounts={"/work": str(work), "/run": None})
    monkeypatch.setattr(imports, "sight_of", lambda *_: sight)
    monkeypatch.setattr(imports, "WORK", work, raising=False)
    return tree


def absent(code: str, *command: str, **changes: object) -> list[str]:
    """What a script in /work/run does not find for certain."""
    write(imports.WORK, {"run/train.py": code})  # type: ignore[attr-defined]
    words = command or ("python", "run/train.py")
    job = make_job(**({"command": words, "image": "theirs", "workdir": "/work"} | changes))
    image = make_image(environment={"PATH": "/opt/env/bin:/usr/bin"})
    return [each.module for each in imports.absent(Store(Path("/nowhere")), image, job)]


@pytest.mark.parametrize(
    "code",
    [
        "import gone",
        "import gone.part as g, numpy",
        "from gone.part import x",
        "from gone import (\n    x,\n    y,\n)",
        "'''import never'''\nimport numpy, gone",
        "if __name__ == '__main__':\n    import gone\nelse:\n    import never",
        "def f():\n    import never\nclass A:\n    import never\nimport gone",
        "import os\nSIZE = 3\nimport gone\nimport gone\nimport sys\nsys.path.append('x')\nimport never",
        "# coding: latin-1\nimport gone # \udce9\n",
    ],
)
def test_imports_that_are_executed_for_certain(code: str) -> None:
    assert absent(code) == ["gone"]


@pytest.mark.parametrize(
    "code",
    [
        "import os, sys, numpy, compiled, space.part.deep, distutils, _bz2, others",
        "try:\n    import gone\nexcept ImportError:\n    gone = None",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import gone",
        "for name in ():\n    import gone",
        "from contextlib import suppress\nwith suppress(ImportError):\n    import gone",
        "def f():\n    import gone\nf()",
        "import sys\nsys.path.insert(0, 'lib')\nimport gone",
        "import sys as s\ns.path.append('lib')\nimport gone",
        "from sys import path as p\np.append('lib')\nimport gone",
        "import os\nos.system('pip install gone')\nimport gone",
        "import sys\nif len(sys.argv) < 2:\n    sys.exit()\nimport gone",
        "import beside\nimport gone",  # it may add others
        "from . import beside\nimport gone",
        "import = 3",
        "import gone\n#" + "x" * 2**20,
    ],
)
def test_nothing_is_said_of_what_may_be_found_or_not_executed(tree: Path, code: str) -> None:
    write(tree.parent / "work", {"run/beside.py": ""})
    assert absent(code) == []


def test_a_package_that_makes_others_importable_ends_the_search() -> None:
    assert absent("import rootutils\nrootutils.setup_root(__file__)\nimport gone") == ["rootutils"]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python run/train.py", ["apt"]),
        ("nice -n 3 python -u -W ignore -Xdev run/train.py x", ["apt"]),
        ("/usr/bin/python3.11 run/train.py", []),
        ("python run/train.py --help", []),
        ("python --odd run/train.py", []),
        ("python -m run.train", []),
        ("python -c import\tapt", []),
        ("python run/gone.py", []),
        ("env PYTHONPATH=lib python run/train.py", []),
        ("sh run/train.py", []),
    ],
)
def test_commands(command: str, found: list[str]) -> None:
    assert absent("import apt", *(word.replace("\t", " ") for word in command.split(" "))) == found


@pytest.mark.parametrize(
    ("changes", "is_found"),
    [
        ({}, True),
        ({"modules": ("python/3.12",)}, False),
        ({"site_layer": ("horovod",)}, False),
        ({"scheduling": Scheduling(after=("5",))}, False),
        ({"environment": {"PYTHONHOME": "/x"}}, False),
        ({"environment": {"PYTHONPATH": "$HOME/lib"}}, False),
        ({"environment": {"PYTHONPATH": "nothing"}}, True),
        ({"environment": {"PYTHONPATH": "given"}}, False),
    ],
)
def test_where_modules_may_come_from(changes: dict[str, object], *, is_found: bool) -> None:
    assert bool(absent("import shown", **changes)) is is_found


@pytest.mark.parametrize(
    ("files", "is_certain"),
    [
        ({f"{ENV}/site-packages/_virtualenv.pth": "import _virtualenv"}, True),
        ({f"{ENV}/site-packages/own.pth": "import own_finder"}, False),
        ({f"{ENV}/site-packages/easy.pth": "./egg.zip", f"{ENV}/site-packages/egg.zip": ""}, False),
        ({f"{SYSTEM}/sitecustomize.py": "import atexit"}, True),
        ({f"{SYSTEM}/sitecustomize.py": "import sys"}, False),
        ({"opt/env/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = true\n"}, True),
    ],
)
def test_code_of_the_environment_that_may_add_modules(
    tree: Path, files: dict[str, str], *, is_certain: bool
) -> None:
    write(tree, files)
    assert bool(absent("import gone")) is is_certain


def test_an_environment_with_the_system_s_packages_has_them(tree: Path) -> None:
    write(tree, {"opt/env/pyvenv.cfg": "home = /usr/bin\nInclude-System-Site-Packages = True\n"})
    assert not absent("import apt, local, numpy")


def test_a_python_without_its_library_is_not_judged(tree: Path) -> None:
    (tree / SYSTEM / "os.py").unlink()
    assert not absent("import gone")


def warnings(job: Job, *absent: AbsentModule) -> list[str]:
    image = make_image()
    made = plan(job, image, make_rootfs(image), make_site(), code=CodeFacts(absent=absent))
    return [each for each in made.warnings if "no module" in each]


def test_the_warning_names_the_place_and_the_command() -> None:
    torch, own = AbsentModule("yaml", "train.py", 3, "PyYAML"), AbsentModule("own", "", 0)
    others = [AbsentModule(f"m{number}", "a.py", number) for number in range(1, 6)]
    assert warnings(make_job(), torch, own) == [
        "the environment has no module yaml (train.py, line 3): pip install PyYAML",
        "the environment has no module own (the command): install what has it; or set PYTHONPATH under "
        "[environment]",
    ]
    assert warnings(make_job(image="theirs"), torch) == [
        "the image has no module yaml (train.py, line 3): add RUN pip install PyYAML to its Dockerfile, then "
        "bareboat image build"
    ]
    assert "m4 (a.py, line 4) and 1 more: " in warnings(make_job(), *others)[0]
