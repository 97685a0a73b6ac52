"""Bareboat packed from what is installed here, and installed again where there is no network."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from builders import fake_digest

from bareboat.bundles import bundle, wheels
from bareboat.captures.build import metadata
from bareboat.model import Image, Layer, Pin
from bareboat_base import __version__, codec
from bareboat_base.errors import BareboatError, ImageError
from bareboat_images.layers import layer as canonical
from bareboat_images.store import Store

INFO = "demo_pkg-1.0+local.dist-info"


@pytest.fixture(scope="module")
def packed() -> dict[str, bytes]:
    return wheels.wheel_set()


def distribution(folder: Path, name: str = "Demo.Pkg", *, tag: str = "py3-none-any", **more: str) -> Path:
    """An installed distribution, as pip leaves it; `more`: path with / as __ -> content."""
    info = folder / f"{name.lower().replace('.', '_')}-1.0+local.dist-info"
    requires = more.pop("requires", "")
    files = {
        f"{info.name}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0+local\n{requires}",
        f"{info.name}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        + "".join(f"Tag: {each}\n" for each in tag.split()),
        f"{info.name}/INSTALLER": "pip\n",
        f"{info.name}/REQUESTED": "",
        f"{info.name}/direct_url.json": '{"url": "file:///home/ada/secret"}',
        **{path.replace("__", "/"): text for path, text in more.items()},
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    listed = [*files, f"{info.name}/RECORD", "../../../bin/demo"]
    buffer = io.StringIO()
    csv.writer(buffer).writerows((path, "", "") for path in listed)
    (info / "RECORD").write_text(buffer.getvalue())
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed distributions that comes before all others."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


# -- what is in them -----------------------------------------------------------------------------------


def test_everything_that_bareboat_needs_is_there(packed: dict[str, bytes]) -> None:
    names = [file.partition("-")[0] for file in packed]
    assert names == sorted(names)
    needed = {
        requirement.partition(";")[0].partition("=")[0].partition(">")[0].strip().replace("-", "_").lower()
        for requirement in importlib.metadata.requires("bareboat") or ()
        if "extra" not in requirement
    }
    assert {"bareboat", *needed} == {name.lower() for name in names}
    assert "pytest" not in names  # of an extra


def test_every_wheel_is_one(packed: dict[str, bytes]) -> None:
    """The record of each lists all of its files with their true hashes."""
    for file, data in packed.items():
        assert len(file.removesuffix(".whl").split("-")) == 5
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.testzip() is None
            names = archive.namelist()
            assert len(names) == len(set(names))
            [record] = [name for name in names if name.endswith(".dist-info/RECORD")]
            listed = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
            assert set(listed) == set(names)
            for name in names:
                assert not name.startswith(("/", ".."))
                assert not name.endswith((".pyc", ".pth", "/INSTALLER", "/REQUESTED", "/direct_url.json"))
                if name != record:
                    content = archive.read(name)
                    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                    assert listed[name] == [f"sha256={digest}", str(len(content))]


def test_all_of_bareboat_is_in_its_wheel(packed: dict[str, bytes]) -> None:
    [file] = [file for file in packed if file.startswith("bareboat-")]
    top = Path(wheels.__file__).parents[2]
    with zipfile.ZipFile(io.BytesIO(packed[file])) as archive:
        names = set(archive.namelist())
        files = (path for path in top.glob("bareboat*/**/*") if path.is_file() and path.suffix != ".pyc")
        assert {path.relative_to(top).as_posix() for path in files} <= names
        assert "bareboat_meter.py" in names
        assert archive.read("bareboat/bundles/wheels.py") == Path(wheels.__file__).read_bytes()
        assert str(top) not in str(archive.infolist())


def test_equal_installations_give_equal_bytes(packed: dict[str, bytes]) -> None:
    assert wheels.wheel_set() == packed


def test_programs_stay_programs(site: Path) -> None:
    distribution(site, demo__tool="#!/bin/sh\n", demo__data="x")
    (site / "demo" / "tool").chmod(0o755)
    [(file, data)] = wheels.wheel_set("demo.pkg").items()
    assert file == "Demo_Pkg-1.0+local-py3-none-any.whl"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        assert modes["demo/tool"] == 0o100755
        assert modes["demo/data"] == 0o100644
        assert set(modes) == {
            "demo/tool",
            "demo/data",
            *(f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD")),
        }


def test_tags_of_several_platforms_are_pressed_together(site: Path) -> None:
    distribution(site, tag="cp311-cp311-manylinux_2_17_x86_64 cp311-cp311-manylinux2014_x86_64")
    assert list(wheels.wheel_set("demo-pkg")) == [
        "Demo_Pkg-1.0+local-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    ]


def test_names_with_commas_and_quotes(site: Path) -> None:
    odd = 'demo/a, "b".txt'
    distribution(site, **{odd: "x"})
    [data] = wheels.wheel_set("demo_pkg").values()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        rows = list(csv.reader(io.StringIO(archive.read(f"{INFO}/RECORD").decode())))
    assert odd in [row[0] for row in rows]
    assert {len(row) for row in rows} == {3}


def test_what_others_require(site: Path) -> None:
    distribution(
        site,
        requires='Requires-Dist: other-one>=1; python_version >= "3"\n'
        'Requires-Dist: not-here; sys_platform == "win32"\n'
        "Requires-Dist: not-wanted ; extra=='test'\n"
        'Requires-Dist: not-wanted-either>1 ; (extra == "test")\n',
    )
    distribution(site, "Other_One", requires="Requires-Dist: demo.pkg\n")  # a circle
    assert list(wheels.wheel_set("demo.pkg")) == [
        "Demo_Pkg-1.0+local-py3-none-any.whl",
        "Other_One-1.0+local-py3-none-any.whl",
    ]


# -- what cannot be packed -----------------------------------------------------------------------------


def test_what_is_not_installed() -> None:
    with pytest.raises(BareboatError, match="no-such-thing is not installed") as caught:
        wheels.wheel_set("no-such-thing")
    assert caught.value.remedy == "pip install no-such-thing"


@pytest.mark.parametrize("marker", ["", '; python_version >= "3"', '; extra == "x" or os_name == "posix"'])
def test_a_requirement_that_is_missing(site: Path, marker: str) -> None:
    """A set that cannot be installed would be found out where there is no network."""
    distribution(site, requires=f"Requires-Dist: no-such-thing>=1{marker}\n")
    with pytest.raises(BareboatError, match="no-such-thing is not installed"):
        wheels.wheel_set("demo.pkg")


def test_what_was_not_installed_from_a_wheel(site: Path) -> None:
    distribution(site, tag="")
    with pytest.raises(BareboatError, match="not installed from a wheel") as caught:
        wheels.wheel_set("demo.pkg")
    assert caught.value.remedy.startswith("pip install --force-reinstall")


def test_a_link_to_somebodys_source(site: Path) -> None:
    distribution(site, **{"_demo.pth": "/home/ada/demo\n"})
    with pytest.raises(BareboatError, match="installed as a link to its source"):
        wheels.wheel_set("demo.pkg")


def test_a_file_that_is_missing(site: Path) -> None:
    distribution(site, demo__data="x")
    (site / "demo" / "data").unlink()
    with pytest.raises(BareboatError, match="not installed whole") as caught:
        wheels.wheel_set("demo.pkg")
    assert "demo/data" in caught.value.context


# -- installed again -----------------------------------------------------------------------------------


def offline(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command whose every attempt to reach a network fails, and which sees none of our packages."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV"))
    }
    nowhere = "http://127.0.0.1:9"
    return subprocess.run(
        [str(word) for word in words],
        env={**environment, "http_proxy": nowhere, "https_proxy": nowhere, "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=300,
    )


def base_python() -> str:
    """The Python of this version that is no virtual environment, and can make one with pip in it."""
    folder = sysconfig.get_config_var("BINDIR")
    python = f"{folder}/python{sys.version_info.major}.{sys.version_info.minor}"
    if offline(python, "-c", "import ensurepip, venv").returncode != 0:
        pytest.skip(f"{python} cannot make a virtual environment with pip")
    return python


def small_image(store: Store, tmp_path: Path) -> Image:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("x")
    diff_id, size = canonical.digest_tree(str(tmp_path / "tree"))
    with store.scratch() as scratch:
        (tmp_path / "tree").rename(scratch / "tree")
        store.publish(scratch / "tree", store.layer(diff_id))
    layers = (Layer(diff_id=diff_id, size_bytes=size, unpacked_bytes=1, inodes=1),)
    made = metadata(layers, machine=os.uname().machine, environment={})
    image = Image(digest=made.manifest_digest, layers=layers)
    store.put_image(image, manifest=made.manifest, config=made.config, config_digest=made.config_digest)
    return image


def test_a_bundle_installs_bareboat_where_there_is_no_network(store: Store, tmp_path: Path) -> None:
    """As its script says: tar -xf BUNDLE bareboat && sh bareboat/install.sh FOLDER."""
    python = base_python()
    image = small_image(store, tmp_path)
    pin = Pin(
        reference="docker.io/library/debian:12", digest=image.digest, root=fake_digest("a"), pinned_at="now"
    )
    bundle.save(image, [pin], store, tmp_path / "bundle.tar", name="x")
    assert bundle.pins(tmp_path / "bundle.tar") == (pin,)
    place = tmp_path / "a place"
    place.mkdir()
    assert offline("tar", "-C", place, "-xf", tmp_path / "bundle.tar", "bareboat").returncode == 0
    done = offline("env", f"PYTHON={python}", "sh", place / "bareboat" / "install.sh", tmp_path / "venv")
    assert done.returncode == 0, done.stdout + done.stderr
    program = tmp_path / "venv" / "bin" / "bareboat"
    assert done.stdout.strip() == f"installed: {program}"
    assert offline(program, "--version").stdout.strip() == f"bareboat {__version__}"
    assert offline(program, "doctor", "--help").returncode == 0
    where = offline(
        tmp_path / "venv" / "bin" / "python", "-c", "import bareboat, msgspec; print(bareboat.__file__)"
    )
    assert where.stdout.startswith(str(tmp_path / "venv")), where.stderr
    checked = offline(
        tmp_path / "venv" / "bin" / "python", "-m", "pip", "check", "--disable-pip-version-check"
    )
    assert checked.returncode == 0, checked.stdout


def test_the_wrong_python_is_told_before_anything_is_done(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho 3.99 x86_64\n")
    other.chmod(0o755)
    script = tmp_path / "install.sh"
    script.write_text(bundle._install_script())
    done = offline("env", f"PYTHON={other}", "sh", script, tmp_path / "venv")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == 2
    assert done.stderr.startswith(f"these wheels are for Python {version} on {os.uname().machine}")
    assert not (tmp_path / "venv").exists()


# -- bundles of others ---------------------------------------------------------------------------------


def archive_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for entry, data in members:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def test_archives_without_pins(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    for data in (b"", b"garbage" * 1000, bytes(10240), b"\x1f\x8b" + bytes(100)):
        path.write_bytes(data)
        assert bundle.pins(path) == ()
    assert bundle.pins(tmp_path / "none") == ()
    assert bundle.pins(tmp_path) == ()
    assert bundle.pins(archive_of(path, (tarfile.TarInfo("other"), b"x"))) == ()


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"[[", b'[{"reference":"a"}]', b"\xff", b"[" * 100_000])
def test_damaged_pins(tmp_path: Path, data: bytes) -> None:
    path = archive_of(tmp_path / "x.tar", (tarfile.TarInfo("bareboat/pins.json"), data))
    with pytest.raises(ImageError) as caught:
        bundle.pins(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_pins_that_are_no_file(tmp_path: Path, kind: bytes) -> None:
    """A link would stand for another member, of any size."""
    link = tarfile.TarInfo("bareboat/pins.json")
    link.type, link.linkname = kind, "huge"
    path = archive_of(tmp_path / "x.tar", (tarfile.TarInfo("huge"), codec.to_json(())), (link, b""))
    assert bundle.pins(path) == ()
