"""The package of plugins/, as it is when it is installed: found by the entry points of its pyproject.toml."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import _links, _own_environment, captured, disk, empty_home  # noqa: F401

from bareboat import registry

PACKAGE = Path(__file__).parents[1]


def entry_points() -> dict[str, dict[str, str]]:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    found: dict[str, dict[str, str]] = project["entry-points"]
    return found


@pytest.fixture(scope="module", autouse=True)
def _found() -> Iterator[None]:
    added = entry_points()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            registry,
            "_places",
            lambda group: {**registry.BUILT_IN[group], **added.get(f"bareboat.{group}", {})},
        )
        yield


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For other processes."""
    folder = tmp_path / "site" / "bareboat_untested-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: bareboat-untested\nVersion: 0\n")
    lines = []
    for group, points in entry_points().items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("PYTHONPATH", f"{PACKAGE / 'src'}:{folder.parent}")
