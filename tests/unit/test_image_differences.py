"""Two images compared: configuration, packages, files; and the history of one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bareboat_base.errors import ImageError
from bareboat_images.comparison import compare_settings, files, packages
from bareboat_images.comparison.files import Change
from bareboat_images.inside import configuration as reading
from bareboat_images.layers.view import View
from bareboat_images.sbom.package import Package


def read(layers: int = 0, **document: object) -> reading.Configuration:
    return reading.read(json.dumps(document).encode(), layers=layers, name="x")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('/bin/sh -c #(nop)  CMD ["bash"]', 'CMD ["bash"]'),
        ("/bin/sh -c apt-get update", "RUN apt-get update"),
        ("RUN /bin/sh -c make # buildkit", "RUN make"),
        ("COPY a /b # buildkit", "COPY a /b"),
        ("|1 V=2 /bin/sh -c make $V", "RUN make $V"),
        ("RUN |2 V=a b W= /bin/sh -c make # buildkit", "RUN make"),
        ("/bin/bash -c a | b", "RUN a | b"),
        ("RUN make", "RUN make"),
        ("|", "|"),
        ("", ""),
    ],
)
def test_a_step_is_shown_as_in_a_dockerfile(written: str, shown: str) -> None:
    assert reading.as_instruction(written) == shown


def test_the_history_names_the_layers_of_its_steps() -> None:
    history = [
        {"created_by": "ADD a"},
        {"created_by": "ENV A=1", "empty_layer": True},
        {"created_by": "RUN b", "created": "2026-01-02T03:04:05Z"},
    ]
    found = read(2, history=history).history
    assert [step.layer for step in found] == [0, None, 1]
    assert [step.is_empty for step in found] == [False, True, False]
    assert [step.layer for step in read(3, history=history).history] == [None] * 3


@pytest.mark.parametrize("data", [b"", b"[]", b'{"history": 1}', b'{"config": {"Env": {}}}', b"[" * 10**5])
def test_a_damaged_config_is_one_error(data: bytes) -> None:
    with pytest.raises(ImageError, match="cannot be read"):
        reading.read(data, layers=0, name="x")


def test_each_setting_is_compared() -> None:
    one = read(
        architecture="amd64", os="linux",
        config={"Env": ["A=1", "B=2", "C"], "Cmd": ["a b"], "User": "0", "Labels": {"l": "1"}},
    )  # fmt: skip
    other = read(
        architecture="arm64", os="linux",
        config={"Env": ["B=2", "A=3", "D=4"], "Cmd": ["c"], "WorkingDir": "/w", "Labels": {"l": "2"},
                "Healthcheck": {"Test": ["NONE"]}},
    )  # fmt: skip
    found = [(each.kind, each.name, each.before, each.after) for each in compare_settings(one, other)]
    assert found == [
        ("setting", "platform", "linux/amd64", "linux/arm64"),
        ("setting", "user", "0", None),
        ("setting", "command", "'a b'", "c"),
        ("setting", "directory", None, "/w"),
        ("setting", "health check", None, '{"Test":["NONE"]}'),
        ("environment", "A", "1", "3"),
        ("environment", "C", "", None),
        ("environment", "D", None, "4"),
        ("label", "l", "1", "2"),
    ]
    assert compare_settings(one, one) == []


def package(kind: str, name: str, version: str, *, path: str = "/p", **qualifiers: str) -> Package:
    return Package(kind=kind, name=name, version=version, path=path, qualifiers=tuple(qualifiers.items()))


def test_packages_are_compared_by_kind_name_and_architecture() -> None:
    before = [
        package("pypi", "Some_Name", "1.0", path="/a"),
        package("deb", "libc6", "2.36", arch="amd64"),
        package("deb", "libc6", "2.36", arch="i386"),
        package("deb", "bash", "5", arch="amd64"),
        package("rpm", "bash", "5", epoch="1"),
        package("conda", "numpy", "1", build="h0"),
        package("pypi", "six", "1"),
        package("pypi", "six", "1", path="/venv"),
    ]
    after = [
        package("pypi", "some-name", "1.0", path="/b"),
        package("deb", "libc6", "2.36", arch="amd64"),
        package("deb", "dash", "1", arch="amd64"),
        package("rpm", "bash", "5", epoch="0"),
        package("conda", "numpy", "1", build="h1"),
        package("pypi", "six", "1"),
        package("pypi", "six", "2", path="/venv"),
    ]
    found = [(each.state, each.kind, each.name, each.before, each.after)
             for each in packages.compare(before, after)]  # fmt: skip
    assert found == [
        ("removed", "deb", "bash", ("5",), ()),
        ("added", "deb", "dash", (), ("1",)),
        ("removed", "deb", "libc6:i386", ("2.36",), ()),
        ("changed", "rpm", "bash", ("1:5",), ("5",)),
        ("changed", "conda", "numpy", ("1-h0",), ("1-h1",)),
        ("changed", "pypi", "six", ("1",), ("2",)),
    ]


def tree(folder: Path, paths: dict[str, str | None]) -> Path:
    for name, content in paths.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif content.startswith("-> "):
            path.symlink_to(content.removeprefix("-> "))
        else:
            path.write_text(content)
    return folder


def changes(before: list[Path], after: list[Path]) -> tuple[list[Change], files.Comparison]:
    comparison = files.Comparison(View(before), View(after))
    return list(comparison.changes()), comparison


def test_files_are_compared_by_content_mode_kind_and_target(tmp_path: Path) -> None:
    one = tree(tmp_path / "one", {
        "same": "1", "content": "12", "size": "1", "mode": "1", "gone/a": "123", "kind": "1", "l": "-> a",
        "folder": None, "m": "-> a",
    })  # fmt: skip
    other = tree(tmp_path / "other", {
        "same": "1", "content": "13", "size": "123", "mode": "1", "new/b/c": "12", "kind/d": "1", "l": "-> b",
        "folder": None, "m": "-> a",
    })  # fmt: skip
    (other / "mode").chmod(0o755)
    (one / "mode").chmod(0o644)
    (other / "folder").chmod(0o700)
    found, comparison = changes([one], [other])
    listed = [(each.path, each.state, each.what, each.before_bytes, each.after_bytes) for each in found]
    assert listed == [
        ("/content", "changed", "content", 2, 2),
        ("/folder", "changed", "mode 0755 -> 0700", 0, 0),
        ("/gone", "removed", "directory", 0, 0),
        ("/gone/a", "removed", "file", 3, 0),
        ("/kind", "removed", "file", 1, 0),
        ("/kind", "added", "directory", 0, 0),
        ("/kind/d", "added", "file", 0, 1),
        ("/l", "changed", "target", 0, 0),
        ("/mode", "changed", "mode 0644 -> 0755", 1, 1),
        ("/new", "added", "directory", 0, 0),
        ("/new/b", "added", "directory", 0, 0),
        ("/new/b/c", "added", "file", 0, 2),
        ("/size", "changed", "content", 1, 3),
    ]
    assert comparison.unreadable == []
    assert changes([one], [one])[0] == []


def test_directories_of_shared_layers_are_not_read(tmp_path: Path) -> None:
    base = tree(tmp_path / "base", {f"usr/lib/{number}": "x" for number in range(50)} | {"etc/a": "1"})
    one = tree(tmp_path / "one", {"etc/b": "1"})
    other = tree(tmp_path / "other", {"etc/b": "2", "etc/.wh.a": ""})
    found, comparison = changes([base, one], [base, other])
    assert [(each.path, each.state) for each in found] == [("/etc/a", "removed"), ("/etc/b", "changed")]
    assert comparison.compared == 4  # /etc, /usr, and what is in /etc


def test_an_equal_file_of_another_layer_is_no_change(tmp_path: Path) -> None:
    one = tree(tmp_path / "one", {"a/b": "x" * 3_000_000})
    other = tree(tmp_path / "other", {"a/b": "x" * 3_000_000, "a/b2": ""})
    (other / "a/b2").unlink()
    assert changes([one], [other])[0] == []
    with open(other / "a/b", "r+b") as stream:
        stream.seek(2_500_000)
        stream.write(b"y")
    assert [each.what for each in changes([one], [other])[0]] == ["content"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    one = tree(tmp_path / "one", {"a": "12", "d/e": "1"})
    other = tree(tmp_path / "other", {"a": "13", "d/e": "2"})
    (one / "a").chmod(0)
    (other / "d").chmod(0)
    try:
        found, comparison = changes([one], [other])
    finally:
        (other / "d").chmod(0o755)
    assert sorted(comparison.unreadable) == ["/a", "/d"]
    assert [(each.path, each.what) for each in found] == [("/d", "mode 0755 -> 0000")]
