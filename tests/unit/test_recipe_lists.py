"""Package lists: what is read of each format, and what a recipe makes of it."""

import contextlib
import tomllib
from collections.abc import Iterator

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from recipe_sites import HDR, target

from bareboat.project.recipes import composition, lists, wanted
from bareboat.project.recipes.lists import Listed
from bareboat.project.recipes.wanted import Choices, Wanted
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
REQUIREMENTS = "numpy==2.1.3 \\\n    --hash=sha256:" + "0" * 64 + "\n"

TEXTS = {
    "uv.lock": (UV, PACKAGE),
    "requirements.txt": (REQUIREMENTS, ""),
    "environment.yml": (CONDA, ""),
    "environment.yaml": (CONDA, ""),
    "pyproject.toml": (PACKAGE, ""),
}


def read(name: str) -> Listed:
    return lists.read(name, *TEXTS[name])


def recipe(listed: Listed, **asked: str) -> Wanted:
    return wanted.complete(Choices(**asked), listed, {}, target(HDR), "x86_64")  # type: ignore[arg-type]


def text(listed: Listed, **asked: str) -> str:
    return composition.compose(recipe(listed, **asked), "bareboat image init")


@pytest.mark.parametrize("name", TEXTS)
def test_every_list_becomes_a_valid_recipe(name: str) -> None:
    listed = read(name)
    for mpi in (None, "auto"):
        made = recipe(listed) if mpi is None else recipe(listed, mpi=mpi)
        written = composition.compose(made, "bareboat image init")
        stages.read(written, given={}, builtin={"TARGETARCH": "amd64"})
        assert name in written or listed.kind == "project"
        assert ("/opt/mpi" in written) == (mpi is not None)


def test_uv() -> None:
    found = read("uv.lock")
    assert found.packages == {"numpy": "2.1.3", "near-by": "1.0", "fork": "2.0"}
    assert found.python == ">=3.11, <3.13"
    assert found.builds
    assert found.needs_git
    assert found.left_out == ("near-by: its source ../near-by is outside the project",)
    written = text(found)
    assert " git" in written
    plain = lists.read("uv.lock", UV, '[project]\nname = "mine"\nversion = "1"\n')
    assert not plain.builds
    assert "COPY . " not in text(plain)


def test_conda_brings_its_own_python() -> None:
    found = read("environment.yml")
    assert found.packages == {"python": "3.11", "numpy": "", "scipy": "1.14.1", "wandb": "0.18.0"}
    assert not found.locked
    assert "prefix" in found.left_out[0]
    assert "debian:" in recipe(found).base
    assert "-m venv" not in text(found)


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
    assert left in lists.requirements(f"numpy==1\n{line}\n").left_out[0]


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
        ("environment.yml", "dependencies: python\n", "$.dependencies"),
        ("environment.yml", "dependencies:\n- pip:\n    torch\n", "$.dependencies[0]"),
        ("uv.lock", "version = 2\n", "version 2 of the format is not supported"),
    ],
)
def test_a_list_that_its_own_tool_refuses(name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match="cannot be read") as caught:
        lists.read(name, text, TEXTS[name][1])
    assert said in caught.value.context


def test_addresses_in_requirements() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    lines = f"git+https://example.org/ada/tool.git@main\ngit+ssh://git@example.org/a/fixed@{commit}\n"
    found = lists.requirements(f"{lines}https://example.org/mine-1.0-py3-none-any.whl#sha256=00\n")
    assert found.needs_git
    assert found.left_out == ()
    assert found.loose == ("tool",)
    assert list(found.packages) == ["tool", "fixed", "mine"]
    assert not lists.requirements("https://example.org/mine-1.0.tar.gz\n").needs_git


def test_requirements() -> None:
    found = lists.requirements(
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
        lists.requirements(REQUIREMENTS + "scipy==1\n")


PROJECT = '[project]\nname = "mine"\nversion = "1"\n'
POETRYS = '[tool.poetry.dependencies]\npython = "^3.12"\nnumpy = "^2"\n'
CORE = '[build-system]\nrequires = ["poetry-core"]\n'


def test_a_project_without_a_lock_file() -> None:
    assert not lists.names_packages("[tool.black]\nline-length = 100\n")
    assert all(map(lists.names_packages, (PROJECT, CORE, POETRYS, "numpy = \n[bad")))
    dynamic = lists.project(PROJECT + 'dynamic = ["dependencies"]\n')
    assert "pip install --no-cache-dir /app" in text(dynamic)
    found = lists.project(
        PROJECT + 'dependencies = ["x @ file:///home/me/x", "y @ git+ssh://git@e.org/y.git", "z==1"]\n'
    )
    assert (found.needs_git, found.packages["z"]) == (True, "1")
    assert found.left_out == ("x: file:///home/me/x is a path of this machine",)
    with pytest.raises(UsageError, match="pip does not read Poetry's"):
        lists.project(POETRYS + CORE)
    with pytest.raises(UsageError, match=r"pyproject.toml cannot be read"):
        lists.read("pyproject.toml", "numpy = \n[bad")


def test_an_old_python_has_no_tomllib() -> None:
    found = lists.project(PROJECT + 'dependencies = ["six==1.16.0"]\n')
    assert "import sys, tomllib" in text(found)
    old = lists.project(PROJECT + 'requires-python = "<3.11"\ndependencies = ["six==1.16.0"]\n')
    assert "import sys, tomli as tomllib" in text(old)
    assert "/opt/env/bin/pip install --no-cache-dir tomli" in text(old)


def test_an_mpi_of_the_environment_is_enough() -> None:
    found = lists.requirements("mpi4py==4.1.2\nopenmpi==5.0.11\n")
    assert recipe(found).mpi is None
    assert recipe(found, mpi="mpich").mpi is not None
    assert recipe(lists.requirements("mpi4py==4.1.2\n")).mpi is not None


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "requirements.txt"])
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


def test_aliases_of_yaml_cost_nothing() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    with contextlib.suppress(UsageError):
        lists.read("environment.yml", f"{bomb}dependencies: *a59\n")


#: Lists with every key that their readers read.
WHOLE = {
    "uv.lock": 'version = 1\nrequires-python = ">=3"\n[[package]]\nname = "numpy"\nversion = "1"\n'
    'source = { editable = "..", directory = "..", path = ".." }\n',
    "environment.yml": "prefix: /x\ndependencies:\n- numpy\n- pip:\n  - rich\n",
    "pyproject.toml": '[project]\nrequires-python = ">=3"\ndependencies = ["numpy"]\ndynamic = ["version"]\n'
    "[tool.uv]\npackage = true\n",
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
    data = parsed(WHOLE[name])
    count = refused = 0
    for each in variants(data):
        monkeypatch.setattr(tomllib, "loads", lambda _text, each=each: each)
        monkeypatch.setattr(yaml, "load", lambda _text, each=each, **_: each)
        count += 1
        try:
            found = lists.read(name, "x = 1", "")
        except UsageError as error:
            refused += 1
            assert error.remedy  # noqa: PT017
            continue
        for word in (*found.packages, *found.packages.values(), found.python):
            assert len(word) != 1 or word in "17", (each, found)
            assert not set(word) & set("[{'"), (each, found)
    assert refused > count / 3
