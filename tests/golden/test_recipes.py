"""The recipes of three sites, as files.

After a change that is meant: `pytest tests/golden --update-golden`, then read the diff of `recipes/`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_sites import SITES, target

from bareboat.project.recipes import composition, definition, dockerfile, lists, wanted
from bareboat.project.recipes.choices import Choices
from bareboat.project.recipes.document import Recipe

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


def recipe(site: str) -> Recipe:
    where = target(SITES[site], site)
    made = wanted.complete(Choices(framework="torch", mpi="auto"), None, {}, where, None, "x86_64")
    return composition.compose(made, f"bareboat image init --for {site} --framework torch --mpi auto")


def locked() -> Recipe:
    listed = lists.read("uv.lock", UV_LOCK, PYPROJECT)
    made = wanted.complete(Choices(), listed, {}, target(SITES["hdr"], "hdr"), None, "x86_64")
    return composition.compose(made, "bareboat image init --for hdr")


TEXTS = {
    **{f"{site}.Dockerfile": dockerfile.write(recipe(site)) for site in SITES},
    **{f"{site}.def": definition.write(recipe(site)) for site in SITES},
    "uv.Dockerfile": dockerfile.write(locked()),
    "uv.def": definition.write(locked()),
}


@pytest.mark.parametrize("name", TEXTS)
def test_recipe(name: str, request: pytest.FixtureRequest) -> None:
    golden = RECIPES / name
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(TEXTS[name])
    assert TEXTS[name] == golden.read_text(), (
        f"{name} differs; when that is meant: pytest tests/golden --update-golden"
    )


def test_the_sites_get_different_recipes() -> None:
    assert len({TEXTS[f"{site}.Dockerfile"] for site in SITES}) == len(SITES)
