"""Measure how long a pull takes and what it costs, compared with other tools and with the limits.

    python bench/pulls.py [--image torch|small|big] [--on FOLDER] [--rounds 5] [--tools podman,umoci]

Every tool pulls the same image from the same docker-registry on this machine into empty directories below
FOLDER (default: a tmpfs; a new ext4 also works, a used one does not: files are created more slowly after
large deletions). The order is random in each round. Prints Markdown: medians of wall time and of CPU seconds
(user and system, with all child processes), and the peak memory of the largest process. Then pulls that
should cost little: of an image that is in the store, of an image on the same base, and 32 at once.

The registry's own work uses the same CPUs: it is in the wall time of every tool and in the CPU seconds of
none. The compressed layers are in the page cache from the first round on. Requires the tools that
tests/lab/install-tools.sh installs; missing tools are skipped and listed. Run it as an ordinary user.
"""

import argparse
import contextlib
import ctypes
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import exhibits
from exhibits import Exhibit, Registry
from peers import BAREBOAT, PEERS, SLOW, UNTAR, Ground, Peer, Steps

_PR_SET_CHILD_SUBREAPER = 36
PULLERS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement. `peak_bytes` is that of the largest process, and never less than this program's own
    (about 20 MB), which the kernel counts until the child has become the tool."""

    scenario: str
    tool: str
    round: int
    wall_s: float
    user_s: float
    system_s: float
    peak_bytes: int
    #: Blobs and bytes of them that the registries sent meanwhile.
    blobs: int
    blob_bytes: int
    #: Inodes that it left, as far as this user can see them.
    inodes: int
    #: Load of the machine before it began (1 minute).
    load: float

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    wall_s: float
    user_s: float
    system_s: float
    peak_bytes: int


def run(commands: Sequence[Sequence[str]], environment: Mapping[str, str], output: Path) -> Usage:
    """Run commands one after the other, and count all that they and their children use."""
    user_s = system_s = 0.0
    peak = 0
    begin = time.monotonic()
    for argv in commands:
        with open(output, "ab") as stream:
            process = subprocess.Popen(argv, env=dict(environment), stdin=subprocess.DEVNULL,
                                       stdout=stream, stderr=stream)  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        user_s, system_s = user_s + used.ru_utime, system_s + used.ru_stime
        peak = max(peak, used.ru_maxrss * 1024)
        if process.returncode:
            text = output.read_text(errors="replace")
            raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}:\n{text[-4000:]}")
    wall_s = time.monotonic() - begin
    # Processes that outlived their parents came to us (PR_SET_CHILD_SUBREAPER): those that have ended count.
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _, used = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                break
            user_s, system_s = user_s + used.ru_utime, system_s + used.ru_stime
    return Usage(wall_s=wall_s, user_s=user_s, system_s=system_s, peak_bytes=peak)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    on: Path
    registries: tuple[Registry, Registry]
    image: Exhibit
    #: An image with the same base, and a few files of its own.
    relative: Exhibit | None

    @contextlib.contextmanager
    def ground(self) -> Iterator[Ground]:
        folder = Path(tempfile.mkdtemp(prefix="bareboat-bench-", dir=self.on))
        (folder / "tmp").mkdir()
        try:
            yield Ground(folder=folder, plain=self.registries[0].address, tls=self.registries[1].address)
        finally:
            clean(folder)

    def sample(self, scenario: str, peer: Peer, steps: Steps, number: int, ground: Ground) -> Sample:
        environment = environment_of(ground, steps)
        output = ground.folder / "output"
        for argv in steps.before:
            exhibits.call(*argv, environment=environment)
        before = count(ground.folder)
        offsets = [registry.log.stat().st_size for registry in self.registries]
        load = os.getloadavg()[0]
        used = run(steps.pull, environment, output)
        sent = [registry.sent(offset) for registry, offset in zip(self.registries, offsets, strict=True)]
        if steps.trees and not any(ground.folder.glob(f"{steps.trees}/etc/debian_version")):
            raise SystemExit(f"{peer.name} left no root file system in {ground.folder}/{steps.trees}")
        return Sample(
            scenario=scenario,
            tool=peer.name,
            round=number,
            blobs=sum(blobs for blobs, _ in sent),
            blob_bytes=sum(size for _, size in sent),
            inodes=count(ground.folder) - before,
            load=load,
            **asdict(used),
        )

    def measure(self, peer: Peer, number: int) -> Iterator[Sample]:
        """A cold pull; where that makes sense, a pull of the same and of a relative into the same folder."""
        with self.ground() as ground:
            steps = peer.steps(ground, self.image)
            yield self.sample("cold", peer, steps, number, ground)
            if not peer.again:
                return
            yield self.sample("warm", peer, steps, number, ground)
            if self.relative is not None:
                yield self.sample("relative", peer, peer.steps(ground, self.relative), number, ground)

    def herd(self, peer: Peer, number: int) -> Sample:
        """Many pulls of one image into one store at once; the time until the last has ended."""
        with self.ground() as ground:
            steps = peer.steps(ground, self.image)
            script = (
                f'for i in $(seq {PULLERS}); do "$@" & jobs+=($!); done\n'
                'for job in "${jobs[@]}"; do wait "$job" || exit; done'
            )
            many = Steps(
                pull=(("bash", "-c", script, "herd", *steps.pull[0]),),
                environment=steps.environment,
                trees=steps.trees,
            )
            return self.sample("herd", peer, many, number, ground)


def environment_of(ground: Ground, steps: Steps) -> dict[str, str]:
    # No temporary file and no setting of the user's takes part. (A bundle of certificates in the environment
    # makes Python's requests verify what ch-image was told not to.)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("BAREBOAT_") and name not in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    }
    own = {
        "TMPDIR": ground.path("tmp"),
        "HOME": ground.path("home"),
        "XDG_RUNTIME_DIR": ground.path("runtime"),
    }
    for name in ("home", "runtime"):
        (ground.folder / name).mkdir(mode=0o700, exist_ok=True)
    return {**kept, **own, **steps.environment}


def clean(folder: Path) -> None:
    """Remove a folder with files of users whom only a user namespace can name, and end what is left there."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # podman's pause process, which keeps its user namespace for the next call.
                if f"TMPDIR={folder}/tmp".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
    if subprocess.run(["rm", "-rf", str(folder)], capture_output=True).returncode:
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], capture_output=True)
        if subprocess.run(["rm", "-rf", str(folder)], capture_output=True).returncode:
            exhibits.call("buildah", "unshare", "rm", "-rf", str(folder))
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def count(folder: Path) -> int:
    """Inodes below a folder; a file with several names is one. du counts them, for the memory that counting
    takes here would be in the peak of each tool that is started from here."""
    done = subprocess.run(["du", "--inodes", "--summarize", str(folder)], capture_output=True, text=True)
    return int(done.stdout.split()[0])


def machine(on: Path) -> str:
    model = next(
        (line.partition(": ")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")),
        platform.machine(),
    )  # fmt: skip
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(on)], capture_output=True, text=True).stdout.strip()
    return f"{model}, {os.cpu_count()} CPUs, kernel {platform.release()}, onto {kind}"


def spread(values: Sequence[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:.2f}" if len(values) == 1 else f"{middle:.2f} [{min(values):.2f} to {max(values):.2f}]"


def table(samples: Sequence[Sample], scenario: str) -> list[str]:
    """Markdown rows of one scenario: tools first, limits last, fastest first."""
    chosen: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.scenario == scenario:
            chosen.setdefault(sample.tool, []).append(sample)
    limits = {peer.name for peer in PEERS if peer.limit}
    walls = {tool: statistics.median(one.wall_s for one in own) for tool, own in chosen.items()}
    cpus = {tool: statistics.median(one.cpu_s for one in own) for tool, own in chosen.items()}
    unit = walls.get(UNTAR)
    own_wall, own_cpu = walls.get(BAREBOAT), cpus.get(BAREBOAT, 1.0)
    rows = [
        "| | wall s | CPU s | user + system | peak MB | MB fetched | inodes | wall / untar "
        "| wall, CPU / Bareboat |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for tool in sorted(chosen, key=lambda tool: (tool in limits, walls[tool])):
        own = chosen[tool]
        rows.append(
            f"| {tool.replace('|', chr(92) + '|')} | {spread([one.wall_s for one in own])} "
            f"| {spread([one.cpu_s for one in own])} "
            f"| {statistics.median(one.user_s for one in own):.1f} + "
            f"{statistics.median(one.system_s for one in own):.1f} "
            f"| {max(one.peak_bytes for one in own) / 1e6:.0f} "
            f"| {statistics.median(one.blob_bytes for one in own) / 1e6:.1f} "
            f"| {statistics.median(one.inodes for one in own):.0f} "
            f"| {'' if unit is None else f'{walls[tool] / unit:.2f}'} "
            f"| {'' if not own_wall else f'{walls[tool] / own_wall:.1f}, {cpus[tool] / own_cpu:.1f}'} |"
        )
    return rows


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def chosen_peers(tools: str) -> list[Peer]:
    wanted = [word.strip() for word in tools.split(",") if word.strip()]
    peers = []
    for peer in PEERS:
        if wanted and not any(word in peer.name for word in wanted):
            continue
        if not wanted and peer.name in SLOW:
            continue
        if peer.missing is None:
            peers.append(peer)
        else:
            say(f"{peer.name} is left out: there is no {peer.missing}; see tests/lab/install-tools.sh")
    return peers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--image", choices=("torch", "small", "big"), default="torch")
    parser.add_argument(
        "--on", type=Path, default=Path("/dev/shm"), help="a directory on the file system to use"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tools", default="", help="only tools whose name contains one of these")
    parser.add_argument("--herd", action="store_true", help=f"also {PULLERS} pulls at once")
    parser.add_argument("--json", type=Path, help="also write the samples here")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of the tools")
    arguments = parser.parse_args()
    if os.geteuid() == 0:
        sys.exit("these are rootless tools; run it as an ordinary user: su USER -c '…'")
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("the kernel does not let this process take in orphans")

    peers = chosen_peers(arguments.tools)
    image = exhibits.exhibit(arguments.image)
    relative = exhibits.exhibit("app") if arguments.image == "torch" else None
    samples: list[Sample] = []
    order = random.Random(arguments.seed)
    with (
        tempfile.TemporaryDirectory(prefix="bareboat-bench-") as folder,
        exhibits.registry(Path(folder)) as plain,
        exhibits.registry(Path(folder), tls=True) as tls,
    ):
        for one in (image, relative):
            if one is not None:
                exhibits.publish(one, plain)
        bench = Bench(on=arguments.on, registries=(plain, tls), image=image, relative=relative)
        for number in range(arguments.rounds):
            for peer in order.sample(peers, len(peers)):
                for sample in bench.measure(peer, number):
                    say(f"round {number + 1}: {peer.name}, {sample.scenario}: {sample.wall_s:.2f} s, "
                        f"CPU {sample.cpu_s:.2f} s, {sample.peak_bytes / 1e6:.0f} MB")  # fmt: skip
                    samples.append(sample)
            if arguments.herd:
                for peer in peers:
                    if peer.name == BAREBOAT:
                        samples.append(bench.herd(peer, number))
                        say(f"round {number + 1}: {PULLERS} at once: {samples[-1].wall_s:.2f} s")
    facts = {
        "machine": machine(arguments.on),
        "image": image.name,
        "compressed_bytes": image.compressed_bytes,
        "layers": len(image.blobs),
        "rounds": arguments.rounds,
        "versions": {peer.name: text for peer in peers if (text := peer.version_text())},
    }
    if arguments.json:
        arguments.json.write_text(
            json.dumps({**facts, "samples": [asdict(one) for one in samples]}, indent=1)
        )
    report(facts, samples)


def report(facts: Mapping[str, object], samples: Sequence[Sample]) -> None:
    size = facts["compressed_bytes"]
    versions = facts["versions"]
    assert isinstance(size, int)
    assert isinstance(versions, dict)
    print(f"{facts['machine']}; image `{facts['image']}`, {size / 1e6:.0f} MB in {facts['layers']} layers; "
          f"{facts['rounds']} rounds, interleaved. Medians [minimum to maximum].\n")  # fmt: skip
    print("; ".join(f"{tool}: {text}" for tool, text in versions.items()) + ".\n")
    titles = {
        "cold": "Pull into an empty store",
        "warm": "Pull of an image that is in the store",
        "relative": "Pull of an image whose base is in the store",
        "herd": f"{PULLERS} pulls of one image at once",
    }
    for scenario, title in titles.items():
        if any(sample.scenario == scenario for sample in samples):
            print(f"### {title}\n")
            print("\n".join(table(samples, scenario)) + "\n")
    together = [sample for sample in samples if sample.scenario == "herd"]
    alone = [sample.wall_s for sample in samples if (sample.scenario, sample.tool) == ("cold", BAREBOAT)]
    if together and alone:
        ratio = statistics.median(one.wall_s for one in together) / statistics.median(alone)
        size = max(one.blob_bytes for one in together)
        print(f"{PULLERS} at once took {ratio:.2f} times as long as one, and fetched {size / 1e6:.1f} MB.")


if __name__ == "__main__":
    main()
