"""The recipe of a site as a file, and what is different in those of other sites.

After a change that is meant: `pytest tests/golden --update-golden`, then read the diff of `recipes/`.
"""

import difflib
from pathlib import Path

import pytest
from recipe_sites import SITES, target

from bareboat.project.recipes import composition, lists, wanted
from bareboat.project.recipes.wanted import Choices

RECIPES = Path(__file__).parent / "recipes"
UV_LOCK = """\
version = 1
requires-python = ">=3.12"

[[package]]
name = "mine"
version = "0.1.0"
source = { editable = "." }

[[package]]
name = "mpi4py"
version = "4.1.2"
"""
PYPROJECT = '[project]\nname = "mine"\nversion = "0.1.0"\n\n[build-system]\nrequires = ["hatchling"]\n'


def recipe(site: str) -> str:
    where = target(SITES[site], site)
    made = wanted.complete(Choices(framework="torch", mpi="auto"), None, {}, where, "x86_64")
    return composition.compose(made, f"bareboat image init --for {site} --framework torch --mpi auto")


def locked() -> str:
    listed = lists.read("uv.lock", UV_LOCK, PYPROJECT)
    made = wanted.complete(Choices(), listed, {}, target(SITES["hdr"], "hdr"), "x86_64")
    return composition.compose(made, "bareboat image init --for hdr")


WHOLE = recipe("hdr")
OTHERS = {**{site: recipe(site) for site in SITES if site != "hdr"}, "uv": locked()}


@pytest.mark.parametrize("name", ["hdr", *OTHERS])
def test_recipe(name: str, request: pytest.FixtureRequest) -> None:
    golden = RECIPES / ("hdr.Dockerfile" if name == "hdr" else f"{name}.diff")
    found = WHOLE if name == "hdr" else _difference(OTHERS[name])
    if request.config.getoption("--update-golden"):
        golden.write_text(found)
    assert found == golden.read_text(), (
        f"{golden.name} differs; when that is meant: pytest tests/golden --update-golden"
    )


def _difference(text: str) -> str:
    lines = difflib.unified_diff(WHOLE.splitlines(), text.splitlines(), n=0, lineterm="")
    return "".join(f"{line}\n" for line in [*lines][2:] if not line.startswith("@@"))
