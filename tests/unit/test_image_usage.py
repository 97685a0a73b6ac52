"""What takes space in an image: directories, the packages that files belong to, and the picture."""

from __future__ import annotations

import json
import re
import sqlite3
import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat_images.layers.view import View
from bareboat_images.sbom.owners import NOBODY, Owners
from bareboat_images.usage import treemap
from bareboat_images.usage.folders import Folder, weigh
from bareboat_images.usage.squares import Box, divide


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
    root = weigh(View([one, other]), owned=lambda path, size: asked.append((path, size)) or "deb")
    assert (root.total.size_bytes, root.total.files, root.total.folders) == (8, 5, 2)
    assert (root.own.size_bytes, root.own.files) == (2, 2)
    [a] = root.folders
    assert (a.path, a.total.size_bytes, a.total.files, a.total.folders) == ("/a", 6, 3, 1)
    assert a.folders[0].by_owner == {"deb": sum(size for path, size in asked if path.startswith("/a/b/"))}
    assert root.by_owner == {"deb": 8}
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


VALUES = st.lists(st.integers(1, 10**9), min_size=1, max_size=60)


@given(VALUES, st.floats(1, 2000), st.floats(1, 2000))
def test_rectangles_fill_the_box_in_proportion(values: list[int], width: float, height: float) -> None:
    ordered = sorted(map(float, values), reverse=True)
    box = Box(3.0, 5.0, width, height)
    placed = divide(ordered, box)
    scale = width * height / sum(ordered)
    for value, each in zip(ordered, placed, strict=True):
        assert each.width * each.height == pytest.approx(value * scale, rel=1e-6, abs=1e-6 * width * height)
        assert each.x >= 3 - 1e-6
        assert each.y >= 5 - 1e-6
        assert each.x + each.width <= 3 + width * (1 + 1e-6) + 1e-6
        assert each.y + each.height <= 5 + height * (1 + 1e-6) + 1e-6
    for at, one in enumerate(placed):
        for other in placed[at + 1 :]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert across <= 1e-6 * width or down <= 1e-6 * height


def test_equal_values_are_nearly_square() -> None:
    assert all(0.5 <= each.width / each.height <= 2 for each in divide([1.0] * 24, Box(0, 0, 600, 400)))


def picture(tmp_path: Path, files: dict[str, str | bytes]) -> tuple[str, Folder]:
    root = weigh(View([tree(tmp_path / "image", files)]), owned=lambda path, _: "deb" if "/d" in path else "")
    return treemap.draw(root, title="an image & <more>", kinds=root.by_owner), root


def test_the_picture_is_one_safe_file(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"usr/d{n}/f{m}": "x" * (n * m + 1) for n in range(20) for m in range(9)}
    files |= {"usr/<script>/a&b": "x" * 5000, "opt/one/two/three": "x" * 9000, 'etc/"q"/\x1b[2J': "x" * 800}
    svg, _ = picture(tmp_path, files)
    parsed = ElementTree.fromstring(svg)
    assert parsed.tag == "{http://www.w3.org/2000/svg}svg"
    assert "\x1b" not in svg
    assert "<script" not in svg
    assert re.findall(r"(?:href|src|url\()", svg) == []
    assert "prefers-color-scheme:dark" in svg
    titles = [each.text or "" for each in parsed.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("/opt/one/two\n9.0 kB, 1 files") for title in titles)
    assert any(title.startswith("/usr/<script>\n") for title in titles)
    assert "Debian packages" in svg
    assert "no package" in svg


def test_no_label_is_wider_than_its_rectangle(tmp_path: Path) -> None:
    svg, _ = picture(
        tmp_path, {f"usr/{'name' * (n % 13)}{n}/f{m}": "x" * (n**2 + m) for n in range(60) for m in range(3)}
    )
    for group in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        rect = group.find("{http://www.w3.org/2000/svg}rect")
        text = group.find("{http://www.w3.org/2000/svg}text")
        if rect is not None and text is not None:
            assert len(text.text or "") * 6.3 <= float(rect.get("width", "0"))
            assert float(rect.get("height", "0")) >= 13


def test_an_image_of_empty_files_has_a_picture(tmp_path: Path) -> None:
    svg, root = picture(tmp_path, {"a": "", "b/c": ""})
    assert root.total.size_bytes == 0
    assert ElementTree.fromstring(svg) is not None


def _luminance(colour: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    digits = colour if len(colour) == 6 else "".join(2 * each for each in colour)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_is_readable_on_light_and_dark_screens(tmp_path: Path) -> None:
    svg, _ = picture(tmp_path, {"a": "1"})
    style = svg[svg.index("<style>") : svg.index("</style>")]
    for part in style.split("@media"):
        fills = re.findall(r"(text|\.\w+)\{[^}]*?fill:#([0-9a-f]{3,6})", part)
        ink = next(_luminance(colour) for name, colour in fills if name == "text")
        backgrounds = {name: _luminance(colour) for name, colour in fills if name != "text"}
        assert {".page", ".frame", ".system", ".conda", ".python", ".r", ".none"} <= backgrounds.keys()
        for name, each in backgrounds.items():
            assert (max(ink, each) + 0.05) / (min(ink, each) + 0.05) >= 4.5, name
