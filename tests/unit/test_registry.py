"""The registry: names, the modules behind them, and what installed packages may add."""

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from bareboat import plugins, registry
from bareboat_base.errors import PlanError, UsageError

GROUPS = ("engines", "launchers", "schedulers")
LOADERS = {
    "engines": registry.engine,
    "launchers": registry.launcher,
    "schedulers": registry.scheduler,
}


def install(monkeypatch: pytest.MonkeyPatch, group: str, name: str, value: str) -> None:
    """As if a package with this entry point were installed."""

    installed = EntryPoints([EntryPoint(name=name, value=value, group=f"bareboat.{group}")])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda: installed)
    monkeypatch.setattr(plugins, "_may_add", lambda _: True)
    monkeypatch.setattr(plugins, "entry_points", plugins.entry_points.__wrapped__)
    monkeypatch.setattr(registry, "_places", registry._places.__wrapped__)


@pytest.mark.parametrize("group", GROUPS)
def test_every_name_has_a_class_in_a_file_of_its_own(group: str) -> None:
    files = [type(LOADERS[group](name)).__module__ for name in registry.names(group)]
    assert len(set(files)) == len(files)
    assert {each.rpartition(".")[0] for each in files} == {f"bareboat.{group}"}


@pytest.mark.parametrize("name", ["", "../x", "bareboat.engines.native", "Native"])
def test_only_a_name_is_a_name(name: str) -> None:
    with pytest.raises(PlanError, match="unknown engine"):
        registry.engine(name)


@pytest.mark.parametrize("group", GROUPS)
def test_a_package_cannot_take_the_name_of_another(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = registry.names(group)[0]
    install(monkeypatch, group, name, "their_module")
    with pytest.raises(UsageError) as caught:
        registry.names(group)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("path", "content", "may"),
    [
        ("odd-1.0.dist-info/entry_points.txt", "[x]\na = b\n\n[bareboat.engines]\nodd = odd:Odd\n", True),
        ("odd.egg-info/entry_points.txt", "[bareboat.launchers]\nodd = odd:Odd\n", True),
        ("EGG-INFO/entry_points.txt", "[bareboat.schedulers]\nodd = odd:Odd\n", True),
        (
            "odd-1.0.dist-info/entry_points.txt",
            "[console_scripts]\nbareboat = bareboat.cli.main:entry\n",
            False,
        ),
        ("odd-1.0.dist-info/METADATA", "Name: odd\n", False),
        ("odd/entry_points.txt", "[bareboat.engines]\nodd = odd:Odd\n", False),
    ],
)
def test_metadata_of_packages_tells_whether_they_add_something(
    tmp_path: Path, path: str, content: str, may: bool
) -> None:
    tmp_path = tmp_path / "packages.egg"
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(content)
    assert plugins._may_add(str(tmp_path)) is may
    packages = importlib.metadata.distributions(path=[str(tmp_path)])
    groups = {point.group for package in packages for point in package.entry_points}
    assert any(group.startswith("bareboat.") for group in groups) is may


def test_what_cannot_be_read_here_is_left_to_python(tmp_path: Path) -> None:
    archive = tmp_path / "packages.zip"
    archive.write_bytes(b"PK")
    assert plugins._may_add(str(archive))
    assert not plugins._may_add(str(tmp_path / "none"))

    class Finder:
        def find_distributions(self) -> None: ...

    assert not plugins._is_known(Finder())
    assert plugins._is_known(object())
