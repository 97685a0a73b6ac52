"""What takes space in an image: directories, the packages that files belong to, and the picture."""

from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path

import pytest

from bareboat_images.layers.view import View
from bareboat_images.sbom.owners import NOBODY, Owners
from bareboat_images.usage.folders import weigh


def tree(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("-> "):
            path.symlink_to(content.removeprefix("-> "))
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def test_directories_have_the_bytes_of_all_below_them(tmp_path: Path) -> None:
    one = tree(tmp_path / "one", {"a/b/c": "123", "a/d": "1", "e": "12", "gone/f": "1234567", "l": "-> e"})
    (one / "a/b/hard").hardlink_to(one / "a/d")
    other = tree(tmp_path / "other", {"a/b/c": "12345"})
    (other / ".wh.gone").touch()
    asked: list[tuple[str, int]] = []
    root = weigh(View([one, other]), each_file=lambda path, size: asked.append((path, size)))
    assert (root.total.size_bytes, root.total.files, root.total.folders) == (8, 5, 2)
    assert (root.own.size_bytes, root.own.files) == (2, 2)
    [a] = root.folders
    assert (a.path, a.total.size_bytes, a.total.files, a.total.folders) == ("/a", 6, 3, 1)
    assert sum(size for _, size in asked) == 8
    assert sorted(path for path, _ in asked) == ["/a/b/c", "/a/b/hard", "/a/d", "/e", "/l"]


def rpm_header(name: str, folders: list[str], files: list[tuple[int, str]]) -> bytes:
    """A header as rpm keeps it: the name, the directories, and each file's directory and name."""
    data, index = b"", b""
    fields: list[tuple[int, int, int, bytes]] = [
        (1000, 6, 1, name.encode() + b"\0"),
        (1117, 8, len(files), b"".join(each.encode() + b"\0" for _, each in files)),
        (1118, 8, len(folders), b"".join(each.encode() + b"\0" for each in folders)),
        (1116, 4, len(files), struct.pack(f">{len(files)}I", *(number for number, _ in files))),
    ]
    for tag, kind, count, content in fields:
        data += bytes(-len(data) % 4)
        index += struct.pack(">IIII", tag, kind, len(data), count)
        data += content
    return struct.pack(">II", len(fields), len(data)) + index + data


def rpm_base(path: Path, *headers: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE Packages (hnum INTEGER, blob BLOB)")
    base.executemany("INSERT INTO Packages VALUES (?, ?)", enumerate(headers))
    base.commit()
    base.close()


def test_files_belong_to_the_packages_that_list_them(tmp_path: Path) -> None:
    top = tree(tmp_path / "top", {
        "lib": "-> usr/lib",
        "usr/lib/libc.so": "1",
        "var/lib/dpkg/info/libc6:amd64.list": "/.\n/lib\n/lib/libc.so\n",
        "var/lib/dpkg/info/python3-six.list": "/usr/lib/python3/dist-packages/six.py\n",
        "usr/lib/python3/dist-packages/six.py": "1",
        "usr/lib/python3/dist-packages/six-1.0.dist-info/RECORD": "six.py,,\nmore.py,,\n",
        "usr/lib/python3/dist-packages/six-1.0.dist-info/METADATA": "Name: six\nVersion: 1.0\n",
        "opt/conda/conda-meta/numpy-1.json": json.dumps({"name": "numpy", "files": ["lib/np/a.py"]}),
        "opt/conda/lib/np/a.py": "1",
        "opt/conda/lib/np-1.dist-info/RECORD": "np/a.py,,\nnp/b.py,,\n../bin/np,,\n",
        "opt/R/library/abind/DESCRIPTION": "Package: abind\nVersion: 1\nBuilt: R 4\n",
        "opt/R/library/abind/deep/x": "1",
    })  # fmt: skip
    rpm_base(
        top / "var/lib/rpm/rpmdb.sqlite",
        rpm_header("bash", ["/bin/", "/etc/"], [(0, "bash"), (1, "bashrc"), (7, "none")]),
    )
    owners = Owners(View([top]))
    assert owners.warnings == []
    for path, owner in {
        "/usr/lib/libc.so": ("deb", "libc6"),
        "/usr/lib/python3/dist-packages/six.py": ("deb", "python3-six"),
        "/usr/lib/python3/dist-packages/__pycache__/six.cpython-311.pyc": ("deb", "python3-six"),
        "/usr/lib/python3/dist-packages/more.py": ("pypi", "six"),
        "/opt/conda/lib/np/a.py": ("conda", "numpy"),
        "/opt/conda/lib/np/b.py": ("pypi", "np"),
        "/opt/conda/bin/np": ("pypi", "np"),
        "/opt/R/library/abind/deep/x": ("cran", "abind"),
        "/bin/bash": ("rpm", "bash"),
        "/etc/bashrc": ("rpm", "bash"),
        "/etc/none": NOBODY,
        "/opt/R/library/x": NOBODY,
    }.items():
        assert owners.of(path) == owner, path


def test_apk_and_distroless_images_have_their_own_lists(tmp_path: Path) -> None:
    alpine = tree(tmp_path / "alpine", {
        "lib/apk/db/installed": "P:musl\nV:1\nF:lib\nR:ld.so\nF:\nR:top\n\nP:busybox\nF:bin\nR:busybox\n",
    })  # fmt: skip
    owners = Owners(View([alpine]))
    assert [owners.of(path) for path in ("/lib/ld.so", "/top", "/bin/busybox")] == [
        ("apk", "musl"), ("apk", "musl"), ("apk", "busybox"),
    ]  # fmt: skip
    distroless = tree(tmp_path / "distroless", {
        "var/lib/dpkg/status.d/libc6": "Package: libc6\n",
        "var/lib/dpkg/status.d/libc6.md5sums": f"{'0' * 32}  lib/libc.so\n",
    })  # fmt: skip
    assert Owners(View([distroless])).of("/lib/libc.so") == ("deb", "libc6")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("var/lib/rpm/rpmdb.sqlite", b"no database"),
        ("opt/conda-meta/a.json", b"{"),
        ("opt/conda-meta/b.json", b"[" * 10**5),
        ("a.dist-info/RECORD", b'"' + b"x" * 200_000 + b"\n"),
    ],
)
def test_damaged_lists_are_warnings(tmp_path: Path, name: str, content: bytes) -> None:
    owners = Owners(View([tree(tmp_path / "top", {name: content})]))
    assert len(owners.warnings) == 1
    assert owners.of("/a") == NOBODY


def test_a_search_that_is_cut_short_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tree(tmp_path / "top", {"a/b": "", "c/d": ""})
    monkeypatch.setattr("bareboat_images.sbom.files._MOST_FOLDERS", 1)
    assert Owners(View([top])).warnings == ["only the first 1 directories were searched"]
