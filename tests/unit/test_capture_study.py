"""The packages of bareboat[study] in a capture: left out only where no program can import them."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import make_job

from bareboat.captures import measuring
from bareboat.captures.collect import Collection, Part
from bareboat.captures.measuring import Program, StudyPackages, starts_script

#: Distribution -> what its metadata requires, and its files.
INSTALLED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "bareboat": (("msgspec>=0.19", 'numpy>=1.26; extra == "study"', "matplotlib; extra == 'study'",
                  'torch; extra == "example"'), {"bareboat/__init__.py": "import numpy"}),
    "msgspec": ((), {"msgspec/__init__.py": ""}),
    "numpy": ((), {"numpy/__init__.py": "", "numpy.libs/libblas.so": "blas", "../../../bin/f2py": "#!"}),
    "matplotlib": (("numpy>=1.25", "python-dateutil>=2.7"), {"matplotlib/__init__.py": "import numpy"}),
    "python_dateutil": (("six>=1.5",), {"dateutil/__init__.py": "import six"}),
    "six": ((), {"six.py": ""}),
    "pip": ((), {"pip/__init__.py": "numpy"}),
    "ware": (("msgspec",), {"ware/__init__.py": "import json"}),
}  # fmt: skip
STUDY = {"matplotlib", "numpy", "python_dateutil", "six"}


class Environment:
    """A prefix with the packages of INSTALLED and a directory of a job."""

    def __init__(self, top: Path) -> None:
        self.prefix = top / "env"
        self.packages = self.prefix / "lib/python3.11/site-packages"
        self.job = top / "job"
        self.job.mkdir(parents=True)
        for name, (requires, files) in INSTALLED.items():
            self.install(name, requires, files)

    def install(
        self, name: str, requires: tuple[str, ...], files: dict[str, str], *, by: str = "pip"
    ) -> Path:
        about = self.packages / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        head = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n"
        (about / "METADATA").write_text(
            head + "".join(f"Requires-Dist: {each}\n" for each in requires) + "\nnumpy and all\n"
        )
        (about / "INSTALLER").write_text(f"{by}\n")
        for path, text in files.items():
            (self.packages / path).resolve().parent.mkdir(parents=True, exist_ok=True)
            (self.packages / path).write_text(text)
        listed = [*files, *(f"{about.name}/{each}" for each in ("METADATA", "INSTALLER", "RECORD"))]
        (about / "RECORD").write_text("".join(f"{each},sha256=x,1\n" for each in listed))
        return about

    def collection(self) -> Collection:
        collection = Collection()
        collection.add(str(self.prefix), Part.PACKAGES)
        return collection

    def find(self, words: bytes = b'{"command":["python","train.py"]}') -> StudyPackages | None:
        return measuring.find(self.collection(), Program(words, (str(self.job),)))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    made = Environment(tmp_path)
    (made.job / "train.py").write_text("import json, ware\n# sixty-six compilations, PILoted\n")
    return made


def test_what_no_program_names_is_left_out_with_all_of_its_files(environment: Environment) -> None:
    compiled = environment.packages / "numpy/__pycache__/__init__.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"code")
    found = environment.find()
    assert found is not None
    assert (set(found.names), found.needed) == (STUDY, "")
    collection = environment.collection()
    measuring.leave_out(collection, found)
    left = {path.removeprefix(f"{environment.packages}/") for path in collection.items}
    assert not [
        path for path in left if path.startswith(tuple(STUDY)) or "dateutil" in path or "f2py" in path
    ]
    assert {"bareboat/__init__.py", "msgspec/__init__.py", "ware/__init__.py", "pip/__init__.py"} <= left
    assert "which the program does not import: matplotlib, python_dateutil, numpy" in collection.left_out[-1]
    assert "study = true" in collection.left_out[-1]


def _pickled(folder: Path) -> None:
    (folder / "model.pkl").write_bytes(b"cnumpy.core.multiarray\n_reconstruct\n.")


def _in_a_picklegz(folder: Path) -> None:
    (folder / "model.pkl.gz").write_bytes(gzip.compress(pickle.dumps([1])))


def _writes(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    return write


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (_writes("train.py", "import numpy as np"), "train.py names numpy"),
        (_writes("lib/deep.py", "from matplotlib import pyplot"), "deep.py names matplotlib"),
        (_writes("train.py", "import os, six"), "train.py names six"),
        (_writes("train.py", "import subprocess; subprocess.run(['f2py'])"), "train.py names f2py"),
        (_writes("run.sh", "python -c 'from six import moves'"), "run.sh names six"),
        (_writes("conf.yaml", "_target_: numpy.array"), "conf.yaml names numpy"),
        (_writes("requirements.txt", "python-dateutil"), "requirements.txt names dateutil"),
        (_writes("train.py", "import importlib\nimportlib.import_module(input())"), "train.py has importlib"),
        (_writes("train.py", "__import__('num' + 'py')"), "train.py has __import__"),
        (_writes("train.py", "exec(text)"), "train.py has exec"),
        (_writes("tool", "#!/bin/sh\nexec bareboat prove x.toml"), "tool has bareboat"),
        (_pickled, "model.pkl names numpy"),
        (_in_a_picklegz, "model.pkl.gz is compressed"),
    ],
)
def test_a_program_that_can_import_one_keeps_all(
    environment: Environment, write: Callable[[Path], None], reason: str
) -> None:
    write(environment.job)
    found = environment.find()
    assert found is not None
    assert reason in found.needed
    assert str(found).endswith(found.needed)


def test_what_only_documents_and_other_environments_name_is_no_use(environment: Environment) -> None:
    _writes("report.html", "numpy 2.1")(environment.job)
    _writes("other/pyvenv.cfg", "")(environment.job)
    _writes("other/use.py", "import numpy")(environment.job)
    _writes("train.py", "import json, bareboat_meter\nmodel.eval(); ast.literal_eval('1')")(environment.job)
    found = environment.find()
    assert found is not None
    assert not found.needed


@pytest.mark.parametrize("where", ["job", "packages"])
def test_too_many_files_are_not_searched(environment: Environment, where: str) -> None:
    folder = environment.job / "data" if where == "job" else environment.packages / "ware"
    folder.mkdir(exist_ok=True)
    for number in range(measuring._MOST_FILES + 1):
        (folder / f"{number}.py").touch()
    found = environment.find()
    assert found is not None
    assert "too many" in found.needed


def test_the_words_of_a_job_count(environment: Environment) -> None:
    found = environment.find(b'{"command":["python","train.py","--backend","numpy"]}')
    assert found is not None
    assert found.needed == "the job names numpy"


def test_another_package_that_may_import_one_keeps_all(environment: Environment) -> None:
    (environment.packages / "ware/optional.py").write_text(
        "try:\n    import numpy\nexcept ImportError: pass\n"
    )
    found = environment.find()
    assert found is not None
    assert found.needed == "ware/optional.py names numpy"


def test_what_another_package_requires_stays(environment: Environment) -> None:
    environment.install("plots", ("python-dateutil",), {"plots.py": ""})
    found = environment.find()
    assert found is not None
    assert set(found.names) == {"matplotlib", "numpy"}


def test_what_the_user_installed_stays_with_its_requirements(environment: Environment) -> None:
    (environment.packages / "matplotlib-1.0.dist-info/REQUESTED").touch()
    assert environment.find() is None
    (environment.packages / "matplotlib-1.0.dist-info/REQUESTED").unlink()
    for name in STUDY:
        (environment.packages / f"{name}-1.0.dist-info/INSTALLER").write_text("conda\n")
    assert environment.find() is None


def test_a_file_that_no_package_lists_keeps_all(environment: Environment) -> None:
    (environment.packages / "numpy/patched.py").write_text("")
    found = environment.find()
    assert found is not None
    assert found.needed == "numpy has files that no package lists, such as patched.py"


def test_an_environment_without_bareboat_loses_nothing(environment: Environment) -> None:
    for path in environment.packages.glob("bareboat-1.0.dist-info/*"):
        path.unlink()
    assert environment.find() is None


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        (["python", "train.py"], True),
        (["/usr/bin/python3.11", "-u", "train.py", "--epochs", "3"], True),
        (["bash", "run.sh"], True),
        (["./run.sh"], True),
        (["python", "-m", "pack.inner"], True),
        (["python", "-i", "train.py"], False),
        (["python"], False),
        (["python", "-c", "import this"], False),
        (["python", "-m", "http.server"], False),
        (["python", "-", "train.py"], False),
        (["jupyter", "lab", "train.py"], False),
        (["env/bin/ipython"], False),
        ([], False),
    ],
)
def test_only_a_script_is_searched(tmp_path: Path, command: list[str], starts: bool) -> None:
    for name in ("train.py", "run.sh", "pack/inner.py", "env/bin/ipython", "env/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    job = make_job(command=tuple(command or ["x"]), workdir=str(tmp_path))
    assert starts_script(job.command if command else (), str(tmp_path), (str(tmp_path),)) is starts
