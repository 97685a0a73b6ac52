"""The modules that a job's Python program imports and its container does not have, found before the start."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site

from bareboat.captures import interpreter
from bareboat.model import AbsentModule, CodeFacts, Job, Scheduling
from bareboat.plan import plan
from bareboat.program_analysis import imports
from bareboat.program_analysis.command import Sight
from bareboat.session import code
from bareboat_images.store import Store

pytestmark = pytest.mark.usefixtures("tree")

ENV, SYSTEM = "opt/env/lib/python3.11", "usr/lib/python3.11"
FINDER = "MAPPING: dict[str, str] = {'edited': '/work/src/edited'}\nNAMESPACES: dict[str, list[str]] = {}\n"
FILES = {
    f"{SYSTEM}/os.py": "",
    f"{SYSTEM}/lib-dynload/_bz2.cpython-311-x86_64-linux-gnu.so": "",
    "usr/bin/python3.11": "",
    "usr/bin/nice": "",
    "usr/bin/sh": "",
    "usr/lib/python3/dist-packages/apt/__init__.py": "",
    "usr/local/lib/python3.11/dist-packages/local.py": "",
    "opt/env/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\n",
    "opt/env/bin/tool": "#!/opt/env/bin/python\nfrom gone.cli import main\n",
    f"{ENV}/site-packages/numpy/__init__.py": "",
    f"{ENV}/site-packages/compiled.cpython-311-x86_64-linux-gnu.so": "",
    f"{ENV}/site-packages/_distutils_hack/__init__.py": "",
    f"{ENV}/site-packages/space/part/deep.py": "",
    f"{ENV}/site-packages/paths.pth": "# own\n/work/other\n",
    f"{ENV}/site-packages/__editable__.edited-1.pth": "import __editable___edited_1_finder; x()",
    f"{ENV}/site-packages/__editable___edited_1_finder.py": FINDER,
    f"{ENV}/site-packages/distutils-precedence.pth": "import os; var = 1",
}
WORK = {
    "helper.py": "import gone\n",
    "changer.py": "import sys\nsys.path.append('x')\n",
    "function.py": "def add():\n    import sys\n    sys.path.append('x')\n",
    "pack/__init__.py": "from .inner import name\n",
    "pack/__main__.py": "from . import late\nimport gone\n",
    "pack/inner.py": "import lost\n",
    "pack/late.py": "if __name__ == '__main__':\n    import never\n",
    "numpy/train.py": "import never\n",
    "other/others.py": "import gone\n",
    "odd.py": "import = \n",
    "wide.py": "import gone\n#" + "x" * 2**20,
    "latin.py": "import numpy # \udce9\n",
    "given/shown.py": "",
    "given/own.py": "import helper\n",
    "src/edited/__init__.py": "import gone\n",
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
    return tree


def absent(*command: str, **changes: object) -> list[tuple[str, str, int]]:
    """What is not found for certain."""
    job = make_job(**({"command": command, "image": "theirs", "workdir": "/work"} | changes))
    image = make_image(environment={"PATH": "/opt/env/bin:/usr/bin"})
    found = imports.absent(Store(Path("/nowhere")), image, job, None)
    return [] if found is None or not found.is_certain else [(*each,) for each in found.imports]


def of_code(text: str) -> list[str]:
    return [name for name, _, _ in absent("python", "-c", text)]


@pytest.mark.parametrize(
    "code",
    [
        "import gone",
        "import gone.part as g, numpy",
        "from gone.part import x",
        "'''import never'''\nimport numpy, gone",
        "try:\n    import gone\nfinally:\n    pass",
        "if __name__ == '__main__':\n    import gone\nelse:\n    import never",
        "def f():\n    import never\nclass A:\n    import never\nimport gone",
        "import sys\nif sys.version_info < (3, 8):\n    sys.exit('too old')\nimport gone",
        "from function import add\nimport gone",
        "import helper",
        "from pack.late import x\nimport gone\nimport gone",
    ],
)
def test_imports_that_are_executed_for_certain(code: str) -> None:
    assert "gone" in of_code(code)
    assert "never" not in of_code(code)


@pytest.mark.parametrize(
    "code",
    [
        "import os, sys, numpy, compiled, space.part.deep, distutils, _bz2, helpers as h",
        "try:\n    import gone\nexcept ImportError:\n    gone = None",
        "try:\n    import gone\nexcept:\n    raise\nelse:\n    import gone",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import gone",
        "import os\nif os.name == 'x':\n    import gone",
        "for name in ():\n    import gone",
        "from contextlib import suppress\nwith suppress(ImportError):\n    import gone",
        "def f():\n    import gone\nf()",
        "import sys\nsys.path.insert(0, 'lib')\nimport gone",
        "import sys as s\ns.path.append('lib')\nimport gone",
        "from sys import path as p\np.append('lib')\nimport gone",
        "import changer\nimport gone",
        "from function import add as a\na()\nimport gone",
        "if True:\n    import changer\nimport gone",
        "import os\nos.system('pip install gone')\nimport gone",
        "import sys\nif len(sys.argv) < 2:\n    sys.exit()\nimport gone",
        "import odd\nimport gone",
        "from . import helper",
        "import wide\nimport gone",
        "import latin\nimport gone",
        "from numpy import train",
        "import = 3",
    ],
)
def test_nothing_is_said_of_what_may_be_found_or_not_executed(tree: Path, code: str) -> None:
    (tree.parent / "work" / "helpers").mkdir()
    assert not of_code(code)


def test_a_package_that_makes_others_importable_ends_the_search() -> None:
    assert of_code("import rootutils\nrootutils.setup_root(__file__)\nimport gone") == ["rootutils"]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python helper.py", [("gone", "/work/helper.py", 1)]),
        ("python given/own.py", [("helper", "/work/given/own.py", 1)]),
        ("nice -n 3 python -u -W ignore -Xdev helper.py x", [("gone", "/work/helper.py", 1)]),
        ("/usr/bin/python3.11 helper.py", [("gone", "/work/helper.py", 1)]),
        ("python -m pack", [("lost", "/work/pack/inner.py", 1), ("gone", "/work/pack/__main__.py", 2)]),
        ("python -um pack.late", [("lost", "/work/pack/inner.py", 1), ("never", "/work/pack/late.py", 2)]),
        ("python -m missing.cli", [("missing", "", 0)]),
        ("python -m numpy", []),
        ("tool", [("gone", "/opt/env/bin/tool", 2)]),
        ("python -c import\tothers", [("gone", "/work/other/others.py", 1)]),
        ("python -c import\tedited", [("gone", "/work/src/edited/__init__.py", 1)]),
        ("python -c import\tapt", [("apt", "", 1)]),
        ("/usr/bin/python3.11 -c import\tapt,local", []),
        ("/usr/bin/python3.11 -c import\tcompiled", [("compiled", "", 1)]),
        ("python helper.py --help", []),
        ("python --odd helper.py", []),
        ("python pack", []),
        ("env PYTHONPATH=lib python helper.py", []),
        ("sh helper.py", []),
    ],
)
def test_commands(command: str, found: list[tuple[str, str, int]]) -> None:
    words = tuple(word.replace("\t", " ") for word in command.split(" "))
    assert absent(*words) == found


@pytest.mark.parametrize(
    ("changes", "is_found"),
    [
        ({}, True),
        ({"modules": ("python/3.12",)}, False),
        ({"site_layer": ("horovod",)}, False),
        ({"scheduling": Scheduling(after=("5",))}, False),
        ({"environment": {"PYTHONHOME": "/x"}}, False),
        ({"environment": {"PYTHONPATH": "$HOME/lib"}}, False),
        ({"environment": {"PYTHONPATH": "given"}}, True),
        ({"environment": {"PYTHONPATH": "given/shown.py"}}, False),
        ({"environment": {"PYTHONPATH": "/run/lib"}}, False),
        ({"command": ("python", "-c", "import shown"), "environment": {"PYTHONPATH": "given"}}, False),
        ({"command": ("python", "-c", "import shown")}, True),
    ],
)
def test_where_modules_may_come_from(changes: dict[str, object], *, is_found: bool) -> None:
    assert bool(absent(**({"command": ("python", "helper.py")} | changes))) is is_found


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
    assert bool(absent("python", "helper.py")) is is_certain


def test_an_environment_with_the_system_s_packages_has_them(tree: Path) -> None:
    write(tree, {"opt/env/pyvenv.cfg": "home = /usr/bin\nInclude-System-Site-Packages = True\n"})
    assert not of_code("import apt, local, numpy")


def test_a_python_without_its_library_is_not_judged(tree: Path) -> None:
    (tree / SYSTEM / "os.py").unlink()
    assert not of_code("import gone")


def test_imports_that_the_files_do_not_have_are_not_searched_for() -> None:
    job = make_job(command=("python", "helper.py"), image="theirs", workdir="/work")
    image = make_image(environment={"PATH": "/opt/env/bin"})
    store = Store(Path("/nowhere"))
    assert imports.absent(store, image, job, frozenset({"numpy", "os"})) is None
    assert imports.absent(store, image, job, frozenset({"numpy", "gone"})) is not None


@pytest.mark.parametrize(
    ("files", "asked", "warned"),
    [
        ({}, [], ["gone"]),  # no other place can have it
        ({f"{ENV}/site-packages/own.pth": "import own_finder"}, [("gone",)], []),
    ],
)
def test_the_interpreter_is_asked_where_its_own_code_may_find_a_module(
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    asked: list[tuple[str, ...]],
    warned: list[str],
) -> None:
    write(tree, files)
    questions: list[tuple[str, ...]] = []
    monkeypatch.setattr(interpreter, "lacks", lambda _python, _path, names: questions.append((*names,)) or ())
    job = make_job(command=("python", "helper.py"), image="capture", workdir="/work")
    image = make_image(environment={"PATH": "/opt/env/bin:/usr/bin"}, python="/opt/env/bin/python")
    found = code._absent(Store(Path("/nowhere")), image, job, CodeFacts())
    assert ([each.module for each in found], questions) == (warned, asked)


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
