"""What all tests share. A missing component skips on a user's machine and fails under --require."""

import hashlib
import itertools
import os
import re
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import engine_page
import forked
import pytest
import tools
from building import Builds
from environments import Captured, make_captured, make_environment
from registries import RealRegistry, real_registry
from tools import PROBED, path_without, tool

from bareboat_base.files.kinds import IN_MEMORY
from bareboat_base.files.mounts import mount_of
from bareboat_images.store import Store

pytest.register_assert_rewrite("engine_lab", "gpu_lab")

#: What tests get of the user's environment: where programs, packages and certificates are, and settings of
#: the tests themselves. A test that depends on another variable sets it.
_KEPT = re.compile(
    r"HOME|LD_LIBRARY_PATH|LOGNAME|PATH|PYTHONPATH|TMPDIR|USER|XDG_(CACHE_HOME|RUNTIME_DIR)"
    r"|(BAREBOAT_LAB|COVERAGE|PIP|PYTEST|SSL_CERT|UV)_\w+|(CURL|REQUESTS)_CA_BUNDLE"
    r"|BAREBOAT_LAB|CI|PATIENCE|PREFIX|RECIPES"
)


def _set_surroundings() -> None:
    """Give this process, and what it starts, the same surroundings on every machine: this is the one place
    where the tests set what differs between users. It comes before the first fixture."""
    # For pip alone: the tests' own servers are on this machine.
    for name in ("https_proxy", "HTTPS_PROXY"):
        if os.environ.get(name):
            os.environ.setdefault("PIP_PROXY", os.environ[name])
    for name in list(os.environ):
        if not _KEPT.fullmatch(name):
            del os.environ[name]
    os.environ |= {"LANG": "C.UTF-8", "SHELL": "/bin/bash", "TERM": "dumb", "TZ": "UTC"}
    time.tzset()
    # Not every user has the administrator's programs on PATH, which containers and jobs use.
    path = os.environ.get("PATH", os.defpath).split(":")
    os.environ["PATH"] = ":".join(dict.fromkeys((*path, "/usr/bin", "/bin", "/usr/sbin", "/sbin")))
    os.umask(0o022)
    # Started by nohup or in the background, we would hand ignored signals on to every process that is tested.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    forked.ENVIRONMENT |= os.environ


_set_surroundings()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require", action="store_true", help="a test that would be skipped fails instead (CI sets this)"
    )
    parser.addoption(
        "--exhaustive",
        action="store_true",
        help="all cases of tests that are marked one_in (see docs/testing.md)",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="also tests that take long (marked thorough); --require has them",
    )
    parser.addoption(
        "--list-skipped",
        metavar="FILE",
        help="write the functions of skipped tests, for `pytest @FILE`; to FILE.passed, cases that passed",
    )
    parser.addoption("--but", metavar="FILE", help="leave out the tests of this list")
    parser.addoption(
        "--update-engines",
        action="store_true",
        help="write docs/engines.md from what the contract suite found",
    )
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew; then read their diff"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests marked one_in(n), leave one case in n, and one of each test at least; of those marked
    sampled(n), one in n. Both by a hash of the name: in the order of the parameters, every n-th case may have
    the same value of one of them. Tests that are marked thorough run with --thorough and --require."""
    if not (config.getoption("--thorough") or config.getoption("--require")):
        is_long = [item.get_closest_marker("thorough") is not None for item in items]
        config.hook.pytest_deselected(items=list(itertools.compress(items, is_long)))
        items[:] = [item for item, left_out in zip(items, is_long, strict=True) if not left_out]
    if config.getoption("--exhaustive"):
        return
    cases: defaultdict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    but = set(Path(file).read_text().splitlines()) if (file := config.getoption("--but")) else set()
    left_out = [item for item in items if item.nodeid in but]
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None and _hash(item) % sampled.args[0]:
            left_out.append(item)
        elif item.get_closest_marker("one_in") is not None:
            cases[item.path, getattr(item, "originalname", item.name)].append(item)
    for found in cases.values():
        (count,) = {mark.args[0] for item in found if (mark := item.get_closest_marker("one_in"))}
        left_out += [item for at, item in enumerate(sorted(found, key=_hash)) if at % count]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _hash(item: pytest.Item) -> int:
    return int.from_bytes(hashlib.sha256(item.name.encode()).digest())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How much was shown, in numbers that are quoted."""
    passed = terminalreporter.getreports("passed")
    limited = terminalreporter.getreports("xfailed")
    found = engine_page.pairs([*passed, *limited])
    if found:
        terminalreporter.write_line(f"pairs of engine and promise: {len(found)}, kept: {sum(found.values())}")
    if config.getoption("--update-engines") and not terminalreporter.getreports("failed"):
        engine_page.write(found)
    if file := config.getoption("--list-skipped"):
        names = {report.nodeid.partition("[")[0] for report in terminalreporter.getreports("skipped")}
        cases = [report.nodeid for report in passed if report.nodeid.partition("[")[0] in names]
        for path, lines in ((file, sorted(names)), (f"{file}.passed", cases)):
            Path(path).write_text("".join(f"{line}\n" for line in lines))
    hostile = sum("tests/hostile/" in str(report.nodeid) for report in passed)
    if hostile:
        terminalreporter.write_line(f"hostile cases passed: {hostile}")
    if config.getoption("--require"):
        terminalreporter.write_line(f"CPU time: {sum(_cpu_s.values()):.0f} s, most of it in")
        for test, cost_s in _cpu_s.most_common(40):
            terminalreporter.write_line(f"  {cost_s:6.1f} s  {test}")
        if config.pluginmanager.hasplugin("cacheprovider"):
            config.cache.set("bareboat/cpu_s", dict(_cpu_s.most_common()))


#: CPU time of each test function, with all its parameters and what it started and waited for.
_cpu_s: Counter[str] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = sum(os.times()[:4]) + forked.cpu_s()
    result = yield
    _cpu_s[item.nodeid.partition("[")[0]] += sum(os.times()[:4]) + forked.cpu_s() - before
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give the times to the process that prints them, if pytest-xdist runs several."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["cpu_s"] = dict(_cpu_s)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _cpu_s.update(getattr(node, "workeroutput", {}).get("cpu_s", {}))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # pytest-xdist sends reports as UTF-8, which has no lone surrogates.
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    if report.skipped and item.config.getoption("--require") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and --require forbids that: {report.longrepr}"
    return report


#: Tests that see nothing of the user's home directory; the others use the storage of engines there.
_WITHOUT_HOME = ("unit", "golden")


@pytest.fixture(scope="session", autouse=True)
def _links(tmp_path_factory: pytest.TempPathFactory) -> None:
    tools.links = tmp_path_factory.mktemp("links")


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _own_environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_home: Path
) -> None:
    """No test sees the user's settings or store."""
    if request.path.parent.name in _WITHOUT_HOME:
        monkeypatch.setenv("HOME", str(empty_home))
    for name in list(os.environ):
        if name.startswith("BAREBOAT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty directory that would survive a restart; /tmp is in memory on many machines."""
    if mount_of(str(tmp_path)).kind not in IN_MEMORY:
        (tmp_path / "disk").mkdir()
        yield tmp_path / "disk"
        return
    if mount_of("/var/tmp").kind in IN_MEMORY:
        pytest.skip("/tmp and /var/tmp are in memory; choose a directory on a disk: --basetemp DIR")
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="bareboat-test-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def lean() -> str:
    """A PATH without engines, schedulers and MPIs, for what does not depend on them."""
    return path_without(*PROBED)


@pytest.fixture(scope="session")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether all cases are asked for."""
    return bool(request.config.getoption("--exhaustive"))


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a small environment, which no test changes."""
    return make_environment(tmp_path_factory.mktemp("small") / "environment")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """Plain HTTP, open to all."""
    with real_registry(tmp_path_factory.mktemp("registry"), access_log=True) as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store of the test's own."""
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """A small environment and its image, for tests that only look and run."""
    return make_captured(tmp_path_factory.mktemp("captured"))


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    """A store with the image `base`, on which commands run."""
    tool("busybox")
    made = Builds(tmp_path_factory.mktemp("builds"))
    made.base()
    return made


@pytest.fixture(params=["overlay", "copy"])
def either(builds: Builds, request: pytest.FixtureRequest) -> Iterator[Builds]:
    """Builds with overlayfs, and without it."""
    if request.param == "copy":
        builds.begin_with()
    yield builds
    builds.variables.pop("PYTHONPATH", None)
