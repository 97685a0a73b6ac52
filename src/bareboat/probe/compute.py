"""A compute node -> Site, through the queue and without Bareboat on the node.

A small bash job answers questions, which are files in a directory of the store that the node sees: the
engines' probes ask them as on the login node. That the node does not see the directory is an answer too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from bareboat import bash, registry
from bareboat.gpu import versions
from bareboat.model import FileSystem, Job, JobState, Outcome, Refusal, Site
from bareboat.model.site import OWN_OF_NODES
from bareboat.probe import fabrics, permits
from bareboat.probe.machine import attempt, probe_engine, processor_name
from bareboat.runs import creation, state, submission
from bareboat.schedulers import CLUSTER, Scheduler
from bareboat_base import codec, execute
from bareboat_base.clock import utc_now
from bareboat_base.errors import BareboatError, ToolError
from bareboat_base.files.mounts import find_mount
from bareboat_base.printable import one_line
from bareboat_images.store import Store

_WALLTIME_S = 300
_POLL_S = 0.05
#: Time from the job's start to its first file, since shared file systems may be slow.
_READY_S = 20.0

_SCRIPT = """\
# Answers Bareboat's questions about this node: each is a file NAME.ask with a command in it.
cd {folder} || exit 3
: > ready
deadline=$((SECONDS + {walltime_s} - 30))
while [ ! -e stop ] && [ "$SECONDS" -lt "$deadline" ]; do
  for ask in *.ask; do
    [ -e "$ask" ] || continue
    name=${{ask%.ask}}
    mv "$ask" "$name.asked"
    (
      bash "./$name.asked" > "$name.out" 2> "$name.err" < /dev/null
      echo "$?" > "$name.new"
      mv "$name.new" "$name.code"
    ) &
  done
  sleep 0.05
done
wait
"""

#: One line per fact: name, blank, value. The processors are the node's: nproc(1) counts those that this small
#: job may use, and obeys OMP_NUM_THREADS.
_FACTS = """\
echo "hostname $(uname -n)"
echo "kernel $(uname -r)"
echo "architecture $(uname -m)"
. /etc/os-release 2>/dev/null
echo "distribution ${PRETTY_NAME:-unknown}"
echo "glibc $(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/glibc //')"
head -n 40 /proc/cpuinfo | sed 's/^/cpuinfo /'
echo "cpus $(getconf _NPROCESSORS_ONLN)"
echo "mem_kb $(sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo)"
echo "load $(cut -d ' ' -f 1 /proc/loadavg)"
echo "timezone $(readlink -f /etc/localtime | sed -n 's|.*/zoneinfo/||p')"
for gpu in /dev/nvidia[0-9]*; do [ -e "$gpu" ] && echo "gpu $gpu"; done
command -v nvidia-smi > /dev/null &&
  timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed 's/^/capability /'
for path in %s; do [ -e "$path" ] || echo "unseen $path"; done
for path in %s; do
  [ -e "$path" ] || continue
  echo "place $(stat -f -c '%%a %%S %%d' "$path") $path"
  echo "real $(readlink -f "$path")"
done
sed 's/^/mount /' /proc/self/mountinfo
(find_module > /dev/null 2>&1) || echo "lacks_modules yes"
"""


_NEEDED = (
    "hostname", "kernel", "architecture", "distribution", "glibc", "load", "timezone",
)  # fmt: skip


class NodeHost:
    """Answers the engines' probes on the node. `moved`: programs with another path there."""

    def __init__(self, folder: Path, store: Store, moved: dict[str, str]) -> None:
        self._folder = folder
        self._store = store
        self._moved = moved
        self._serials = itertools.count(1)

    def run(self, argv: Sequence[str], *, timeout_s: float = 20.0) -> Outcome:
        words = [self._moved.get(word, word) for word in argv]
        return self._ask("exec " + shlex.join(words), tuple(argv), timeout_s)

    def shell(self, script: str) -> str:
        """The output of a script on the node."""
        outcome = self._ask(script, ("bash",), 60.0)
        if not outcome.ok:
            raise ToolError("the compute node does not answer", context=outcome.stderr)
        return outcome.stdout

    def which(self, name: str) -> str | None:
        return self.shell(f"command -v {shlex.quote(name)} || true").strip() or None

    def scratch(self) -> str:
        folder = self._folder / f"scratch-{next(self._serials)}"
        folder.mkdir()
        return str(folder)

    def for_one_subject(self) -> NodeHost:
        return self

    def user_namespace_obstacle(self) -> Refusal | None:
        return permits.switched_off(lambda path: self.shell(f"cat {path} 2>/dev/null || true"))

    def _ask(self, script: str, argv: tuple[str, ...], timeout_s: float) -> Outcome:
        name = self._folder / f"{next(self._serials):06d}"
        began = time.monotonic()
        part = name.with_suffix(".part")
        part.write_bytes(os.fsencode(script + "\n"))
        os.replace(part, name.with_suffix(".ask"))
        code = name.with_suffix(".code")
        while not code.exists():
            if time.monotonic() - began > timeout_s + 20.0:
                raise ToolError(
                    f"{argv[0]} did not answer on the compute node within {timeout_s:.0f} s",
                    context=shlex.join(argv),
                )
            time.sleep(_POLL_S)
        told = code.read_text(errors="replace").strip()
        return Outcome(
            argv=argv,
            exit_code=int(told) if re.fullmatch("[0-9]{1,3}", told) else 127,
            stdout=name.with_suffix(".out").read_text(errors="surrogateescape"),
            stderr=name.with_suffix(".err").read_text(errors="surrogateescape"),
            wall_s=time.monotonic() - began,
        )


def look(store: Store, job: Job, login: Site, *, moved: dict[str, str], say: Callable[[str], None]) -> Site:
    """Submit a small job to where `job` would go, probe the node that it runs on, and store the facts.

    `login`: the facts about this machine, whose user is kept. Raises BareboatError when the job does not
    start.
    """
    scheduler = registry.scheduler(job.scheduler or registry.HERE)
    with store.scratch(own=True) as folder:
        number = _submit(scheduler, job, login, folder)
        try:
            seen = _await(scheduler, number, folder, say)
            say(f"probing the node of job {number}")
            facts = login.scheduler(scheduler.NAME)
            plugins = facts.mpi_plugins if facts is not None else ()
            host = NodeHost(folder, store, moved)
            site = _site(host, store, login, plugins) if seen else _blind(store, login)
            own = _own_directories(host) if seen else ()
            site = msgspec.structs.replace(site, own=own)
        finally:
            (folder / "stop").touch()
            submission.cancel_by(scheduler.cancel(number))
    store.write(store.site(site_name(job, login)), codec.to_json(site))
    return site


def site_name(job: Job, login: Site) -> str:
    """The name of a compute node's facts: scheduler, cluster where it is known, and partition."""
    facts = login.scheduler(job.scheduler or "")
    partition = job.scheduling.partition
    if partition is None:
        known = facts.partitions if facts is not None else ()
        partition = next((each.name for each in known if each.default), "default")
    cluster = facts.settings.get(CLUSTER) if facts is not None else None
    return "-".join(each for each in (job.scheduler, cluster, partition) if each)


def _submit(scheduler: Scheduler, job: Job, login: Site, folder: Path) -> str:
    small = msgspec.structs.replace(
        job,
        name="bareboat-doctor",
        topology=msgspec.structs.replace(job.topology, nodes=1, ranks_per_node=1, cpus_per_rank=1),
        scheduling=msgspec.structs.replace(job.scheduling, requeue=False, warning_s=0, after=()),
        walltime_s=_WALLTIME_S,
    )
    body = _SCRIPT.format(folder=shlex.quote(str(folder)), walltime_s=_WALLTIME_S)
    text = "\n".join(["#!/usr/bin/env bash", *scheduler.directives(small, login), body])
    script = folder / "look.sh"
    script.write_bytes(os.fsencode(text))
    argv = scheduler.submit(str(script), scheduler.log_pattern(str(folder / "output.log")))
    return scheduler.job_id(creation.submit_by(argv, text if scheduler.SUBMITS_STDIN else None, small))


def _await(scheduler: Scheduler, number: str, folder: Path, say: Callable[[str], None]) -> bool:
    """Whether the running job sees the store."""
    running_since = None
    while True:
        if (folder / "ready").exists():
            return True
        entry = state.ask(scheduler.NAME, [number]).get(number)
        if entry is not None and entry.stuck:
            raise BareboatError(
                "the job that probes a compute node does not start",
                context=f"{scheduler.TITLE} reports: {entry.reason}",
                remedy="bareboat doctor --compute   # in a directory that the nodes see, or with another "
                "--partition",
            )
        if entry is not None and entry.state is JobState.PENDING:
            say(f"job {number} is pending{f' ({entry.reason})' if entry.reason else ''}")
        else:
            running_since = running_since or time.monotonic()
            # The job ended, or runs without its first file, which it writes before anything else.
            if time.monotonic() - running_since > _READY_S:
                break
        time.sleep(0.5)
    if entry is not None and entry.state in (JobState.CANCELLED, JobState.NODE_FAIL):
        raise BareboatError(
            f"the job that probes a compute node ended: {entry.state.value}",
            context=entry.reason,
            remedy="bareboat doctor --compute",
        )
    return False


def _blind(store: Store, login: Site) -> Site:
    """The facts about a node that does not see the store, which cannot be probed further."""
    return msgspec.structs.replace(
        login, hostname="a compute node", engines=(), gpus=(), gpu_capabilities=(), file_systems=(),
        schedulers=(), network=None, unseen=tuple(dict.fromkeys((str(store.root), str(store.own)))),
        checks=(), probed_at=utc_now(),
    )  # fmt: skip


def _site(host: NodeHost, store: Store, login: Site, plugins: Sequence[str] = ()) -> Site:
    asked = {"store": str(store.root), "home": login.home, "tmp": "/tmp", "shm": "/dev/shm"}
    seen = tuple(dict.fromkeys((str(store.root), str(store.own), login.home)))
    script = _FACTS % (shlex.join(seen), shlex.join(asked.values()))
    facts: dict[str, list[str]] = {}
    for line in host.shell(bash.piece("bareboat.render", "runtime/modules") + script).splitlines():
        name, _, value = line.partition(" ")
        facts.setdefault(name, []).append(value)
    one = {name: values[0] for name, values in facts.items()}
    odd = [name for name in _NEEDED if name not in one] + [
        f"{name} {value}" for name in ("cpus", "mem_kb") if not (value := one.get(name, "")).isdecimal()
    ]
    if odd:
        raise ToolError(
            "the compute node did not report all facts",
            context=f"missing or invalid:  {', '.join(map(one_line, odd))}",
            remedy="run uname, getconf and stat there and check their output",
        )
    remarks: list[str] = []
    names = registry.names("engines")
    with execute.side_by_side(len(names)) as pool:
        engines = tuple(pool.map(lambda name: probe_engine(name, host), names))
    purposes = {path: purpose for purpose, path in asked.items()}
    mounts = "\n".join(facts.get("mount", ()))
    pairs = zip(facts.get("place", ()), facts.get("real", ()), strict=False)
    places = [
        attempt("a file system", partial(_file_system, *pair, mounts, purposes), None, remarks)
        for pair in pairs
    ]
    file_systems = tuple(each for each in places if each is not None)
    return msgspec.structs.replace(
        login,
        hostname=one["hostname"],
        kernel=one["kernel"],
        architecture=one["architecture"],
        distribution=one["distribution"],
        glibc=one["glibc"],
        cpu_model=processor_name("\n".join(facts.get("cpuinfo", ())), one["architecture"]),
        cpus=int(one["cpus"]),
        mem_bytes=int(one["mem_kb"]) * 1024,
        load_1min=float(one["load"]) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", one["load"]) else 0.0,
        timezone=one["timezone"],
        gpus=tuple(facts.get("gpu", ())),
        gpu_capabilities=versions.capabilities("\n".join(facts.get("capability", ()))),
        unseen=tuple(facts.get("unseen", ())),
        lacks_modules="lacks_modules" in facts,
        engines=tuple(found for each in engines for found in each),
        file_systems=file_systems,
        schedulers=(),
        checks=(),
        network=attempt("the network", lambda: fabrics.parse(host.shell(fabrics.SCRIPT)), None, remarks),
        broken_launches=attempt("srun", lambda: _broken_launches(host, plugins), {}, remarks),
        remarks=tuple(remarks),
        probed_at=utc_now(),
    )


def _own_directories(host: NodeHost) -> tuple[str, ...]:
    """The directories of which the node has its own, without what this machine makes in its."""
    with contextlib.ExitStack() as made:
        marks = {
            made.enter_context(tempfile.TemporaryDirectory(prefix="bareboat-", dir=place)): place
            for place in OWN_OF_NODES
            if os.access(place, os.W_OK)
        }
        said = host.shell(f'for path in {shlex.join(marks)}; do [ -e "$path" ] || echo "$path"; done')
    return tuple(marks[path] for path in said.splitlines())


def _broken_launches(host: NodeHost, plugins: Sequence[str]) -> dict[str, str]:
    """The PMIs listed by srun that cannot start a process on this node, with srun's message."""

    def start(plugin: str) -> Outcome:
        argv = ("timeout", "30", "srun", f"--mpi={plugin}", "--ntasks=1", "--overlap", "true")
        return host.run(argv, timeout_s=40.0)

    if not plugins or not start("none").ok:  # then the PMI is not the cause
        return {}
    tried = {plugin: start(plugin) for plugin in plugins if plugin != "none"}
    return {
        f"srun --mpi={plugin}": one_line(
            next(iter(outcome.stderr.splitlines()), "it did not exit"), limit=200
        )
        for plugin, outcome in tried.items()
        if not outcome.ok
    }


def _file_system(line: str, real: str, mounts: str, purposes: dict[str, str]) -> FileSystem:
    blocks, size, inodes, path = line.split(" ", 3)
    mount = find_mount(mounts, real)
    return FileSystem(
        purpose=purposes[path],
        path=path,
        kind=mount.kind,
        free_bytes=int(blocks) * int(size),
        free_inodes=int(inodes),
        options=mount.options,
    )
