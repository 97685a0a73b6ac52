"""Whether `plan --for` foretells what clusters do with jobs: each job is planned from the facts of three
test clusters, then submitted on each.

    python bench/sites.py TREE [--jobs NAME,…] [--keep DIR]

TREE: what tests/lab/cluster/second-site.sh made. Requires the programs of local clusters
(tests/lab/cluster/install-clusters.sh, tests/lab/mpi-pairs.sh); run it as an ordinary user. The sites: a
Slurm of Debian 12 with three nodes and a partition of its own, a Slurm of Debian 13 with two nodes, and
a Grid Engine with three. On each, `doctor --export` writes its facts, without and with --compute. Images are
captured here and loaded on each site. Prints a row for each job and site: what was foretold from the login
node's facts and from both, what happened, and whether the second agrees.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import archives
import clusters
from clusters import Cluster
from images import busybox, pack
from installation import install

ROOT = Path(__file__).resolve().parents[1]
MPI = Path("/opt/bareboat-lab/mpi")
#: Image -> the environment that is captured for it.
CAPTURED = {
    "debian": "debian",
    "mpich": "mpich-5.0.2",
    "openmpi5": "openmpi-5.0.11",
    "openmpi418": "openmpi-4.1.8",
}
_SIZE = "from mpi4py import MPI; w = MPI.COMM_WORLD; print('rank', w.rank, 'of', w.size)"


class Wanted(NamedTuple):
    """A job. `lines` stand before its tables; `size`: of the world of its ranks, where they use MPI."""

    image: str = "debian"
    lines: str = ""
    topology: str = ""
    scheduling: str = ""
    command: tuple[str, ...] = ()
    size: int = 0

    def text(self) -> str:
        python = str(MPI / CAPTURED.get(self.image, "debian") / "bin" / "python")
        command = self.command or (python, "-c", _SIZE if self.size else "print('here')")
        return (
            f"command = {json.dumps(command)}\nimage = {json.dumps(self.image)}\n"
            f"walltime_s = 300\n{self.lines}\n"
            f"[topology]\n{self.topology}\n[scheduling]\n{self.scheduling}\n"
        )


JOBS = {
    "plain": Wanted(),
    "two nodes": Wanted(topology="nodes = 2\nranks_per_node = 2", size=4),
    "three nodes": Wanted(topology="nodes = 3", size=3),
    "four nodes": Wanted(topology="nodes = 4", size=4),
    "three CPUs": Wanted(topology="cpus_per_rank = 3"),
    "20 GiB": Wanted(scheduling='mem_per_node_bytes = "20 GiB"'),
    "a GPU": Wanted(topology="gpus_per_rank = 1"),
    "partition": Wanted(scheduling='partition = "own"'),
    "small partition": Wanted(scheduling='partition = "small"', lines="", topology="nodes = 1"),
    "closed queue": Wanted(scheduling='partition = "closed"'),
    "arm64": Wanted(image="arm", command=("/bin/true",)),
    "busybox": Wanted(image="busybox", command=("/bin/echo", "here")),
    "host's MPI": Wanted(lines='launcher = "host-mpi"', topology="nodes = 2", size=2),
    "host's mpirun": Wanted(lines='launcher = "mpirun"', topology="nodes = 2", size=2),
    "srun": Wanted(lines='launcher = "srun"', topology="nodes = 2", size=2),
    "MPICH": Wanted(image="mpich", topology="nodes = 2", size=2),
    "MPICH 4 ranks": Wanted(image="mpich", topology="nodes = 2\nranks_per_node = 2", size=4),
    "OpenMPI 5": Wanted(image="openmpi5", topology="nodes = 2", size=2),
    "OpenMPI 4.1.8": Wanted(image="openmpi418", topology="nodes = 2", size=2),
    "apptainer": Wanted(lines='engine = "apptainer"'),
    "podman": Wanted(lines='engine = "podman"'),
    "charliecloud": Wanted(lines='engine = "charliecloud"'),
    "udocker": Wanted(lines='engine = "udocker"'),
    "writable": Wanted(lines="writable = true"),
    "one file": Wanted(lines='form = "file"'),
    "delivered": Wanted(lines='delivery = "node"', topology="nodes = 2", size=2),
    "account": Wanted(scheduling='account = "research"'),
    "mail": Wanted(lines='notify = "mail"'),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--keep", type=Path, help="a new directory for facts, plans and what was printed")
    options = parser.parse_args()
    jobs = {name: JOBS[name] for name in options.jobs.split(",")}
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        here = Here(folder, install(folder / "installed"))
        images = here.images({wanted.image for wanted in jobs.values()})
        sites = {}
        for name, site, nodes, tree in (
            ("debian12", "slurm", 3, ""),
            ("debian13", "slurm", 2, str(options.tree)),
            ("gridengine", "gridengine", 3, ""),
        ):
            sites[name] = stack.enter_context(begun(folder / name, site, nodes, tree))
            sites[name].programs.append(
                clusters.installed_in_tree(sites[name], ROOT / "src") if tree else here.programs
            )
        sites["debian12"].root(
            "login", "scontrol create PartitionName=own Nodes=c1 State=UP MaxTime=00:20:00"
        )
        for name, up in sites.items():
            for file, more in ((f"{name}-login.json", []), (f"{name}.json", ["--compute"])):
                up.login(["bareboat", "doctor", *more, "--export", up.home / file], timeout_s=600)
                shutil.copy(up.home / file, folder)
            for archive in images:
                shutil.copy(archive, up.home)
                up.login(["bareboat", *here.load(up.home / archive.name)], timeout_s=600)
        print(f"{'job':16}{'site':12}{'by login':10}{'by both':10}{'happened':16}agree", flush=True)
        rows = [row for name, wanted in jobs.items() for row in here.compared(name, wanted, sites)]
    print(f"{sum(rows)} of {len(rows)} agree")


@contextlib.contextmanager
def begun(folder: Path, site: str, nodes: int, tree: str) -> Any:
    clusters.TREE = tree
    with clusters.cluster(folder, site, nodes, gpus=2) as up:
        yield up


class Here:
    """This machine: a store with the images, and the plans."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs

    def bareboat(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.programs / "bareboat", *words, "--store", self.folder / "store"],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def images(self, names: set[str]) -> list[Path]:
        files = []
        for name in sorted(names):
            path = self.folder / f"{name}.tar"
            if name in CAPTURED:
                python = MPI / CAPTURED[name] / "bin" / "python"
                done = self.bareboat("image", "capture", "--python", python, "--save", path, "--name", name)
            else:
                write_archive(path, "arm64" if name == "arm" else "amd64")
                done = self.bareboat(*self.load(path))
            assert done.returncode == 0, done.stderr
            files.append(path)
        return files

    def load(self, path: Path) -> list[str]:
        words = ["load", str(path)]
        if path.stem == "arm":  # a foreign architecture only by request
            words = ["pull", "--arch", "aarch64", f"oci-archive:{path}"]
        return ["image", *words, "--name", path.stem]

    def compared(self, name: str, wanted: Wanted, sites: dict[str, Cluster]) -> list[bool]:
        called = name.replace(" ", "-").replace(",", "").replace("'", "")
        job = self.folder / f"{called}.toml"
        job.write_text(wanted.text())
        facts = [f"{site}{kind}.json" for kind in ("-login", "") for site in sites]
        done = self.bareboat("plan", job, "--json", *(f"--for={each}" for each in facts))
        (self.folder / f"{called}.foretold").write_text(done.stdout + done.stderr)
        foretold = json.loads(done.stdout)
        said = ["runs" if each["runs"] else "refused" for each in foretold]
        runs: dict[str, str] = {}
        for site, up in sites.items():
            shutil.copy(job, up.home)
            submitted = up.login(
                ["bareboat", "submit", "--json", up.home / job.name], check=False, timeout_s=600
            )
            (self.folder / f"{called}.{site}").write_text(submitted.stdout + submitted.stderr)
            runs[site] = json.loads(submitted.stdout)["run_id"] if submitted.returncode == 0 else ""
            if not runs[site]:
                runs[site] = f" {submitted.returncode}"
        rows = []
        for number, (site, up) in enumerate(sites.items()):
            by_login, by_both = said[number], said[number + len(sites)]
            happened, why = outcome(up, runs[site], wanted)
            with (self.folder / f"{called}.{site}").open("a") as stream:
                stream.write(why)
            rows.append(by_both == happened)
            agree = "yes" if rows[-1] else "NO"
            print(f"{name:16}{site:12}{by_login:10}{by_both:10}{happened:16}{agree}", flush=True)
            if by_both == "refused":
                print(f"    {foretold[number + len(sites)]['reason'].splitlines()[0]}", flush=True)
        return rows


def outcome(up: Cluster, run: str, wanted: Wanted) -> tuple[str, str]:
    """What a job did, and what it printed."""
    if run.startswith(" "):
        return ("refused" if run == " 3" else f"exit code{run}"), ""
    try:
        waited = up.login(["bareboat", "wait", run], check=False, timeout_s=180)
    except subprocess.TimeoutExpired:
        status = up.login(["bareboat", "status", run], check=False).stdout
        up.login(["bareboat", "cancel", run], check=False)
        return "does not end", status
    log = up.login(["bareboat", "logs", run], check=False)
    text = log.stdout + log.stderr + waited.stderr
    if waited.returncode:
        return f"fails with {waited.returncode}", text
    if wanted.size and text.count(f" of {wanted.size}") < wanted.size:
        return "wrong world", text
    return "runs", text


def write_archive(path: Path, architecture: str) -> None:
    """An OCI archive of an image with a shell."""
    image = pack(busybox(), architecture=architecture)
    path.write_bytes(archives.tar_of(archives.oci_files([image], [archives.entry(image)])))


if __name__ == "__main__":
    main()
