"""Nodes that forbid things: on each, every engine runs the job or is refused before it, with the reason.

The kernel refuses for real, in namespaces of the test's own (tests/restricted.py). In a user namespace of one
user Podman has no range of ids to map, so it is refused on all these nodes; as root it is tried like others.
"""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import restricted
from environments import Captured
from tools import path_without, tool

from bareboat import registry, render
from bareboat.deployment.present import rootfs_of
from bareboat.engines import Container, Enclosure
from bareboat.model import Command, Site
from bareboat.render import words
from bareboat_base import codec
from bareboat_images.formats.flatten import make_flat

#: What each engine is started by.
PROGRAMS = {
    "bubblewrap": (),
    "charliecloud": ("ch-run",),
    "apptainer": ("apptainer",),
    "singularity": ("singularity",),
    "podman": ("podman",),
    "podman-hpc": ("podman", "podman-hpc"),
    "udocker": ("udocker", "proot"),
    "udocker:P1": ("udocker", "proot"),
}
_ALL = tuple(name for names in PROGRAMS.values() for name in names)

_COMMAND = """
import tempfile, ware
open("began", "w").close()
tempfile.TemporaryFile().write(b"x")
print(ware.NAME)
"""


#: What the node forbids -> the options that make it so.
NODES = {
    "nothing": "",
    "overlays of the store": "--deep STORE",
    "programs in the store": "--noexec STORE",
    "fuse": "--no-device fuse",
    "more than 1 MiB of /dev/shm": "--small /dev/shm",
    "writes to the home": "--read-only HOME",
    "ptrace": "--deny ptrace --deny process_vm_readv",
    "mounts": "--deny mount",
}

_NOEXEC = r"programs in \S+ cannot be started: it is mounted noexec\n.*\n? *try: export BAREBOAT_STORE="
_SECCOMP = r"a seccomp filter, as in a container,.*mount"

#: Where an engine that runs when nothing is forbidden must refuse, and what it must say. Elsewhere it runs.
REFUSED = {
    **{("programs in the store", engine): _NOEXEC for engine in PROGRAMS if engine != "bubblewrap"},
    **{("mounts", engine): _SECCOMP for engine in PROGRAMS if "udocker" not in engine},
    ("ptrace", "udocker:P1"): "ptrace",
    ("writes to the home", "podman"): "read-only file system",
}


class Node:
    """A machine that forbids something."""

    def __init__(self, captured: Captured, top: Path, forbids: str) -> None:
        self.captured, self.top = captured, top
        self.home, self.work = top / "home", top / "work"
        for folder in (self.home, self.work):
            folder.mkdir(exist_ok=True)
        places = {"STORE": str(captured.store.root), "HOME": str(self.home)}
        self.options = [places.get(word, word) for word in NODES[forbids].split()]
        if "/tmp" in self.options:
            # What this test and Bareboat themselves are made of may lie there.
            used = [*sys.path, sys.prefix, sys.base_prefix, *places.values()]
            tops = {"/".join(path.split("/")[:3]) for path in used if path.startswith("/tmp/")}
            self.options += [word for top in sorted(tops) for word in ("--keep", top)]

    def bareboat(self, *arguments: str | Path, engine: str | None = None) -> subprocess.CompletedProcess[str]:
        """`bareboat …`, on a machine that has no engine but bubblewrap and this one (None: all of them)."""
        missing = [name for name in _ALL if engine is not None and name not in PROGRAMS[engine]]
        environment = {
            **os.environ,
            "PATH": path_without(*missing),
            "HOME": str(self.home),
            "BAREBOAT_STORE": str(self.captured.store.root),
        }
        return self.run(sys.executable, "-m", "bareboat", *map(str, arguments), environment=environment)

    def run(
        self, *command: str, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, restricted.__file__, *self.options, "--", *command],
            cwd=self.work, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def job(self, image: str = "ware", workdir: Path | None = None, command: str = _COMMAND) -> Path:
        path = self.top / "job.toml"
        self.captured.store.name_image(image, self.captured.image.digest)
        words = json.dumps(["python", "-c", command])
        workdir = workdir or self.work
        path.write_text(f'command = {words}\nimage = "{image}"\nworkdir = "{workdir}"\n')
        return path


@pytest.fixture
def node(captured: Captured, tmp_path: Path) -> Callable[[str], Node]:
    tool("setpriv")
    return functools.partial(Node, captured, tmp_path)


@pytest.fixture(scope="module")
def runs_here(captured: Captured, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bool]:
    """Whether the engine runs the job in such a namespace when nothing is forbidden."""

    @functools.cache
    def answer(engine: str) -> bool:
        free = Node(captured, tmp_path_factory.mktemp("free"), "nothing")
        return free.bareboat("run", "--engine", engine, free.job(), engine=engine).returncode == 0

    return answer


@pytest.mark.one_in(9)
@pytest.mark.parametrize("engine", PROGRAMS)
@pytest.mark.parametrize("forbids", NODES)
def test_the_job_runs_or_is_refused_before_it_begins(
    node: Callable[[str], Node], runs_here: Callable[[str], bool], forbids: str, engine: str
) -> None:
    for name in PROGRAMS[engine]:
        tool(name)
    there = node(forbids)
    done = there.bareboat("run", "--engine", engine, there.job(), engine=engine)
    assert "Traceback" not in done.stderr
    refusal = REFUSED.get((forbids, engine))
    if refusal is None and ("podman" not in engine or runs_here(engine)):
        assert (done.returncode, done.stdout) == (0, "ware\n"), done.stderr
        return
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    assert not (there.work / "began").exists()
    # An engine with several modes has a reason for each.
    assert re.search(f"the engine {engine} cannot run here(: | in any mode\n +{engine}:)", done.stderr)
    assert re.search(r"^ *try: \S", done.stderr, re.MULTILINE)
    if refusal is not None and runs_here(engine):
        assert re.search(refusal, done.stderr), done.stderr


@pytest.mark.parametrize(
    ("forbids", "chosen", "reason"),
    [
        ("overlays of the store", "bubblewrap", "one flat tree, read-only"),
        ("programs in the store", "bubblewrap", "cannot be started"),
        ("mounts", "udocker:P1", "forbids user namespaces or mounts in them: mount"),
    ],
)
def test_left_to_itself_bareboat_takes_what_works_and_says_why(
    node: Callable[[str], Node], forbids: str, chosen: str, reason: str
) -> None:
    for names in PROGRAMS.values():
        for name in names:
            tool(name)
    there = node(forbids)
    plan = there.bareboat("plan", "-v", there.job())
    assert re.search(rf"^ *engine +{chosen}$", plan.stdout, re.MULTILINE), plan.stdout + plan.stderr
    assert reason in plan.stdout
    done = there.bareboat("run", there.job())
    assert (done.returncode, done.stdout) == (0, "ware\n"), done.stderr


def test_an_environment_in_the_working_folder_runs_from_a_store_without_programs(
    node: Callable[[str], Node], captured: Captured
) -> None:
    """It is laid over the host's copy: by an overlay too, since a bind mount would keep noexec."""
    there = node("programs in the store")
    command = "import sys, ware; print(sys.executable, ware.__file__)"
    job = there.job(workdir=captured.folder.parent, command=command)
    done = there.bareboat("run", "--engine", "bubblewrap", job)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{captured.python} {captured.folder}/lib/")


def test_one_flat_tree_runs_from_a_store_without_programs(
    node: Callable[[str], Node], captured: Captured
) -> None:
    there = node("programs in the store")
    facts = codec.from_json(
        there.bareboat("doctor", "--json", engine="bubblewrap").stdout.encode(), Site, what="facts"
    )
    flat = rootfs_of(captured.store, captured.image).flat
    make_flat(captured.store, captured.image, ())
    container = Container(flat=flat, home=str(there.home))
    command = Command(argv=(str(captured.python), "-c", "import ware; print(ware.NAME); open('/x', 'w')"))
    for site, said in ((facts, "ware\n"), (msgspec.structs.replace(facts, checks=()), "")):
        enclosure = registry.engine("bubblewrap").judge(site, captured.image)
        assert isinstance(enclosure, Enclosure)
        wrapped = enclosure.wrap(command, container)
        sealed = " ".join(words.sealed_entries(wrapped))
        script = f"{render.subject('common')}\nseal {sealed}\nexec {' '.join(words.groups(wrapped))}"
        done = there.run("bash", "-c", script)
        assert done.stdout == said, done.stderr
        assert done.returncode != 0
        assert ("Read-only file system: '/x'" in done.stderr) == bool(said)


def test_neither_programs_nor_overlays_in_the_store_is_refused(
    node: Callable[[str], Node], captured: Captured
) -> None:
    there = node("overlays of the store")
    there.options += ["--noexec", str(captured.store.root)]
    done = there.bareboat("run", there.job())
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "bubblewrap: programs in" in done.stderr
    assert "export BAREBOAT_STORE=" in done.stderr
    assert not (there.work / "began").exists()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("forbids", "line", "remedy"),
    [
        ("overlays of the store", r"no +overlay in a user namespace: the store's file system", "none needed"),
        ("programs in the store", r"no +programs in the store: .* mounted noexec", "export BAREBOAT_STORE="),
        ("more than 1 MiB of /dev/shm", r"no +/dev/shm: 1 MiB", "sudo mount -o remount,size=50% /dev/shm"),
        ("mounts", r"no +user namespaces: a seccomp filter", "start the outer container with --security-opt"),
    ],
)
def test_the_doctor_names_what_is_forbidden_and_what_mends_it(
    node: Callable[[str], Node], forbids: str, line: str, remedy: str
) -> None:
    done = node(forbids).bareboat("doctor", "-v", engine="bubblewrap")
    found = re.search(rf"^ *{line}.*\n(.*)", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout + done.stderr
    if remedy:
        assert found[1].strip().startswith(f"try: {remedy}")
    free = node("nothing").bareboat("doctor", "-v", engine="bubblewrap").stdout
    assert forbids == "fuse" or not re.search(rf"^ *{line}", free, re.MULTILINE), "it is so everywhere here"
