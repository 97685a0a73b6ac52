"""Jobs on a real Slurm cluster: trainings, signals, lost nodes, refusals, and the verbs."""

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import need_program
from clusters import TREE, Cluster, need_accounting, need_this_system
from desks import Desk, desk_on, ranks_said

LAB = Path(__file__).parents[1] / "lab"
EXAMPLES = Path(__file__).parents[2] / "examples"
NODES = ("c1", "c2", "c3")


@pytest.fixture
def desk(slurm: Cluster, tmp_path: Path, python: Path) -> Desk:
    """With the environment of the tests themselves, which has PyTorch, where the nodes have this system."""
    return desk_on(slurm, "slurm", python if TREE else Path(sys.executable), tmp_path.name)


@pytest.fixture
def small(desk: Desk, python: Path) -> Desk:
    """With an environment that is captured in no time."""
    return replace(desk, python=python)


@pytest.fixture
def training(desk: Desk) -> Desk:
    need_this_system()
    pytest.importorskip("torch")
    shutil.copy(LAB / "training.py", desk.folder)
    return desk


def result(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((desk.folder / "result.json").read_text())
    return found


@pytest.fixture(scope="module")
def curve(slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return local_curve(slurm_cluster, tmp_path_factory, ranks=6)


@pytest.fixture(scope="module")
def curve_of_four(slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return local_curve(slurm_cluster, tmp_path_factory, ranks=4)


def local_curve(
    slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, *, ranks: int
) -> list[float]:
    """The losses of the same training by as many ranks on one machine."""
    need_this_system()
    pytest.importorskip("torch")
    desk = desk_on(slurm_cluster, "local", Path(sys.executable), tmp_path_factory.mktemp("local").name)
    shutil.copy(LAB / "training.py", desk.folder)
    job = desk.job("local", ["python", "training.py", "."], nodes=1, ranks_per_node=ranks)
    desk.bareboat("run", job)
    found = result(desk)
    assert found["shown"] == [4] * 240
    losses: list[float] = found["losses"]
    assert len(losses) == {4: 32, 6: 20}[ranks]
    assert ranks != 6 or losses[-1] < losses[0]
    return losses


def is_same(losses: list[float], curve: list[float]) -> bool:
    return losses == pytest.approx(curve, abs=1e-6, rel=0)


# --- trainings ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "launcher", "delivery"),
    [
        ("bubblewrap", "torchrun", "node"),
        ("apptainer", "torchrun", "node"),
        ("bubblewrap", "ranks", "shared"),
    ],
)
def test_a_training_on_three_nodes_has_the_curve_of_the_local_one(
    training: Desk, curve: list[float], engine: str, launcher: str, delivery: str
) -> None:
    desk = training
    more = f'engine = "{engine}"\nlauncher = "{launcher}"\ndelivery = "{delivery}"'
    job = desk.job("train", ["python", "training.py", "."], more=more)
    run = desk.submit(job)
    log = desk.wait(run)
    said = (line for lines in ranks_said(log).values() for line in lines)
    told = [json.loads(line) for line in said if re.match(r"\[\d", line)]  # between PyTorch's warnings
    assert sorted(rank for rank, *_ in told) == list(range(6))
    assert {size for _, size, _ in told} == {6}
    assert sorted(node for *_, node in told) == sorted(NODES * 2)
    found = result(desk)
    assert is_same(found["losses"], curve)
    assert found["shown"] == [4] * 240
    deliveries = [(each["node"], each["how"]) for each in desk.record(run)["deliveries"]]
    assert sorted(deliveries) == ([(node, "unpacked") for node in NODES] if delivery == "node" else [])
    left = [desk.up.node(node, "find /tmp -maxdepth 3 -path '/tmp/bareboat-*'").stdout for node in NODES]
    assert left == [""] * len(NODES)


@pytest.mark.long
@pytest.mark.slow
def test_the_example_trains_on_three_nodes(desk: Desk) -> None:
    need_this_system()
    pytest.importorskip("sklearn")
    shutil.copy(EXAMPLES / "digits.py", desk.folder)
    text = (
        (EXAMPLES / "digits.toml").read_text().replace("ranks_per_node = 2", "ranks_per_node = 1\nnodes = 3")
    )
    run = desk.submit(desk.write("digits.toml", text), "--python", sys.executable)
    log = desk.wait(run)
    (accuracy,) = re.findall(r"^\[rank 0\] world size 3, test accuracy (\S+)$", log, re.MULTILINE)
    assert float(accuracy) > 0.9


@pytest.mark.slow
def test_a_killed_node_costs_no_sample_and_the_record_has_both_starts(
    training: Desk, curve_of_four: list[float]
) -> None:
    desk = training
    job = desk.job("lost", ["python", "training.py", ".", "--wait-at", "10"], nodes=2, ranks_per_node=2)
    run = desk.submit(job)
    desk.up.wait(lambda: desk.log(run).count("waits") == 4, "four ranks at the tenth step")
    second = desk.status(run)["hosts"]
    desk.up.kill_node("c2" if "2" in second else "c1")
    log = desk.wait(run)
    found = result(desk)
    assert found["from"] == [0, 8] or found["from"][-1] == 8, log
    assert found["shown"] == [4] * 240
    assert is_same(found["losses"], curve_of_four)
    record = desk.record(run)
    assert (record["exit_code"], len(record["starts"])) == (0, 2)
    assert len(list((desk.store / "runs" / run).glob("record*.json"))) == 1


@pytest.mark.slow
def test_a_node_that_is_lost_after_the_others_ended_is_no_success(desk: Desk) -> None:
    """srun then returns 0."""
    script = "[ -e again ] || [ $RANK = 0 ] || { touch again; echo alone; sleep 100; }; echo ended"
    job = desk.job("late", ["sh", "-c", script], nodes=2, ranks_per_node=1, more='launcher = "ranks"')
    run = desk.submit(job)
    desk.up.wait(lambda: {"[rank 0] ended", "[rank 1] alone"} <= set(desk.log(run).splitlines()), "the ranks")
    desk.up.kill_node((desk.store / "runs" / run / "control" / "hosts").read_text().split()[1])
    log = desk.wait(run)
    assert log.count("[rank 1] ended") == 1, log
    record = desk.record(run)
    assert (record["exit_code"], len(record["starts"])) == (0, 2)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("launcher", ["torchrun", "ranks"])
def test_told_by_a_signal_it_saves_its_state_and_goes_on(
    training: Desk, curve_of_four: list[float], launcher: str
) -> None:
    desk = training
    job = desk.job(
        "told", ["python", "training.py", ".", "--wait-at", "10"], nodes=2, more=f'launcher = "{launcher}"'
    )
    run = desk.submit(job)
    desk.up.wait(lambda: desk.log(run).count("waits") == 4, "four ranks at the tenth step")
    desk.up.login(["scancel", "--batch", "-s", "USR1", desk.status(run)["job_id"]])
    log = desk.wait(run)
    assert log.count("saved at step 10") >= 4, log
    found = result(desk)
    assert found["from"][-1] == 10
    assert found["shown"] == [4] * 240
    assert is_same(found["losses"], curve_of_four)
    assert len(desk.record(run)["starts"]) == 2


# --- the verbs ----------------------------------------------------------------------------------------------

SLEEPS = ["bash", "-c", 'echo "rank $RANK here"; sleep 600']


def test_the_job_outlives_who_waits_for_it(small: Desk) -> None:
    job = small.job("alone", ["bash", "-c", "echo here; until [ -e go ]; do sleep 0.2; done; exit 4"],
                    more='launcher = "ranks"')  # fmt: skip
    waiting = small.start("submit", job, "--wait")
    runs = small.store / "runs"
    small.up.wait(lambda: any(ranks_said(small.log(p.name)) for p in runs.glob("alone-*")), "the job's start")
    (run,) = (path.name for path in runs.glob("alone-*"))
    for process in small.up.processes("login"):
        if "submit" in process.command and "bareboat" in process.command:
            small.up.login(["kill", "-KILL", str(process.pid)], check=False)
    assert waiting.wait(30) != 0
    # While it runs: what it says, as it says it, and a shell beside it.
    follow = small.start("logs", "-f", run)
    attach = small.up.login(
        f"script -qec {shlex.quote(f'bareboat attach --host {run}')} /dev/null",
        stdin="echo shell on $(hostname) of job $SLURM_JOB_ID\nexit 5\n",
        cwd=small.folder, environment=small.environment, check=False,
    )  # fmt: skip
    number = small.status(run)["job_id"]
    assert f"shell on c1 of job {number}" in attach.stdout
    assert attach.returncode == 5
    (small.folder / "go").touch()
    small.wait(run, code=4)
    said, _ = follow.communicate(timeout=60)
    assert follow.returncode == 0
    assert said.decode() == small.log(run)
    assert said.count(b"here") >= 6


@pytest.mark.parametrize("engine", ["bubblewrap", "apptainer", "native"])
def test_attach_opens_a_shell_in_the_job_s_container(small: Desk, engine: str) -> None:
    """With its image, mounts, variables and secrets, and the terminal's TERM. Only a private file has the
    secrets, for another start of the job."""
    if engine == "apptainer" and TREE:
        need_program(engine)
    mounts = "" if engine == "native" else 'mounts = ["/etc/hostname:/etc/where"]'
    more = f'engine = "{engine}"\nenvironment_from = ["API_TOKEN"]\n{mounts}\n'
    more += '[environment]\nCOLOUR = "dark green"\n'
    job = small.job("shell", ["sh", "-c", "echo up; sleep 300"], nodes=1, ranks_per_node=1, more=more)
    given = {**small.environment, "API_TOKEN": "s3cret-of-the-job"}
    made = small.up.login(["bareboat", "submit", job], cwd=small.folder, environment=given)
    run = made.stdout.strip()
    small.up.wait(lambda: "up" in small.log(run), "the job's start")
    told = "echo on=$(uname -n) color=$COLOUR token=$API_TOKEN term=$TERM image=${BAREBOAT_IMAGE:-none} end\n"
    attach = small.up.login(
        f"script -qec {shlex.quote(f'bareboat attach {run}')} /dev/null",
        stdin=told + "ls /etc/where; exit 5\n", cwd=small.folder, check=False,
        # What this shell has under the name is not the job's.
        environment={**small.environment, "TERM": "vt220", "API_TOKEN": "another"},
    )  # fmt: skip
    assert attach.returncode == 5, attach.stdout
    image = "none" if engine == "native" else small.record_of_plan(run)["image_digest"]
    line = f"on=c1 color=dark green token=s3cret-of-the-job term=vt220 image={image} end"
    assert line in attach.stdout, attach.stdout
    assert (engine == "native") == ("No such file" in attach.stdout), attach.stdout
    folder = small.store / "runs" / run
    private = folder / "control" / "environment"
    assert [path for path in folder.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()] == [
        private
    ]
    assert private.stat().st_mode & 0o777 == 0o600
    small.bareboat("cancel", run)
    small.wait(run, code=143)
    assert not private.exists()


def test_run_uses_the_nodes_of_the_job_that_it_is_called_in(small: Desk) -> None:
    """salloc's shell is on the login node, which no rank may run on."""
    says = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE on $(uname -n); exit $RANK"]
    two = small.job("two", says, nodes=2, ranks_per_node=1, more='launcher = "ranks"')
    one = small.job("one", ["sh", "-c", "uname -n"], nodes=1, ranks_per_node=1)
    three = small.job("three", says, nodes=3, ranks_per_node=1)
    line = (
        f"bareboat run {two}; echo code $?; bareboat run {one}; bareboat run {three}; bareboat submit {one}"
    )
    done = small.up.login(
        ["salloc", "-Q", "--nodes=2", "--ntasks-per-node=1", "bash", "-c", line],
        cwd=small.folder, environment=small.environment, check=False, timeout_s=240,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "[rank 0] rank 0 of 2 on c1" in said, said
    assert "[rank 1] rank 1 of 2 on c2" in said
    assert "code 1" in said
    assert "\nc1\n" in said
    assert "the job needs 3 nodes, but slurm job" in said
    assert "submit starts a new job" in said
    status = small.status("two")
    assert (status["state"], status["exit_code"], status["end"]["cause"]) == ("failed", 1, "exit code")
    assert "rank 1 of 2" in small.bareboat("logs", "two").stdout


@pytest.mark.parametrize("launcher", ["ranks", "srun"])
def test_the_sampler_follows_the_ranks_of_each_node(small: Desk, launcher: str) -> None:
    small.write("wait.py", "import os, time\nwhile not os.path.exists('go'): time.sleep(0.1)\n")
    more = f'launcher = "{launcher}"\nengine = "bubblewrap"'
    run = small.submit(small.job("wait", ["python", "wait.py"], nodes=2, ranks_per_node=2, more=more))
    place = small.store / "runs" / run / "control" / "usage"

    def ranks() -> list[list[str]]:
        files = sorted(place.glob("*/processes.csv"))
        return [
            sorted({line.split(",")[1] for line in file.read_text().splitlines()[1:]} - {""})
            for file in files
        ]

    try:
        small.up.wait(lambda: ranks() == [["0", "1"], ["2", "3"]], "samples of all ranks")
    finally:
        small.write("go", "")
    small.wait(run)
    used = small.record(run)["usage"]
    assert used["totals"]["nodes"] == 2
    assert max(used["curves"]["rss_bytes"]) > 4 << 20
    assert not [each for node in NODES for each in small.up.processes(node) if "sampler" in each.command]


def test_cancel_leaves_no_process_on_any_node(small: Desk) -> None:
    run = small.submit(small.job("cancelled", SLEEPS, more='launcher = "ranks"'))
    small.up.wait(lambda: len(ranks_said(small.log(run))) == 6, "six ranks")
    assert {line.split(":")[0] for line in small.left(run)} == set(NODES)
    small.bareboat("cancel", run)
    small.wait(run, code=143)
    small.up.wait(lambda: not small.left(run), "no process left on any node")
    assert small.status(run)["state"] == "cancelled"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("table", "topology", "said", "remedy"),
    [
        ('partition = "nowhere"', {}, "partition 'nowhere' does not exist", "--partition NAME, one of: "),
        ('partition = "retired"', {}, "the partition retired does not accept jobs now", "--partition NAME"),
        ('partition = "small"', {}, "the partition small allows 1", "use another partition"),
        ("", {"nodes": 4}, "the job requires 4 nodes", "set nodes = 3"),
        ("", {"cpus_per_rank": 40}, "requires 80 CPUs per node", "reduce ranks_per_node"),
        ("", {"gpus_per_rank": 2}, "requires 4 GPUs per node", "reduce ranks_per_node"),
        ("mem_per_node_bytes = 99000000000", {}, "of memory per node", "mem_per_node_bytes under"),
        ('account = "nobody"', {}, "cannot charge the account 'nobody'", "--account NAME, one of: "),
        ('account = "expired"', {}, "Slurm rejected the job", "use another --account"),
        ('qos = "none"', {}, "Slurm rejected the job", "sacctmgr show qos"),
        ('options = ["--gres=tpu:1"]', {}, "Slurm rejected the job", "try: "),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_with_a_remedy_and_leaves_nothing(
    small: Desk, table: str, topology: dict[str, int], said: str, remedy: str
) -> None:
    if "account" in table or "qos" in table:
        need_accounting()
    before = sorted((small.store / "runs").glob("*")) if (small.store / "runs").exists() else []
    nodes = topology.pop("nodes", 3)
    job = small.job("refused", SLEEPS, nodes=nodes, more=f"[scheduling]\n{table}", **topology)
    done = small.bareboat("submit", job, code=3)
    assert said in done.stderr
    assert remedy in done.stderr
    assert done.stdout == ""
    assert sorted((small.store / "runs").glob("*")) == before
    assert small.up.login("squeue -h -a").stdout == ""


def test_the_sites_settings_complete_a_job(small: Desk) -> None:
    file = small.folder / "config" / "bareboat" / "site.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('partition = "small"\naccount = "research"\n')
    job = small.job("sites", ["bash", "-c", "echo on $SLURM_JOB_PARTITION"], nodes=1, ranks_per_node=1)
    run = small.submit(job)
    small.wait(run)
    row = f"sacct -X -n -P -o Partition,Account -j {small.status(run)['job_id']}"
    # The accounts hear of it some time later, and piece by piece.
    small.up.wait(
        lambda: bool(TREE) or small.up.login(row).stdout.strip() == "small|research",
        "the job in the accounts",
    )


def test_doctor_tells_the_login_node_from_a_compute_node(small: Desk) -> None:
    facts = small.folder / "facts.json"
    found = json.loads(small.bareboat("doctor", "--compute", "--json", "--export", facts).stdout)
    assert json.loads(facts.read_text()) == found
    login, compute = found["login"], found["compute"]
    assert (login["hostname"], compute["hostname"] in NODES) == ("login", True)
    assert (compute["unseen"], compute["own"][0], compute["lacks_modules"]) == ([], "/tmp", True)
    assert len(compute["gpus"]) == 2
    works = {facts["name"] for facts in compute["engines"] if facts["works"]}
    assert {"bubblewrap", "native"} <= works
    assert small.up.login("squeue -h -a").stdout == ""
    loads = small.job("loads", SLEEPS, more='modules = ["cuda/12.2"]')
    assert "remove modules" in small.bareboat("plan", loads, code=3).stderr
    # What is foretold elsewhere from the facts is what is planned here.
    job = small.job("foretold", SLEEPS, nodes=2, ranks_per_node=2)
    [foretold] = json.loads(small.bareboat("plan", job, "--json", "--for", facts).stdout)
    planned = json.loads(small.bareboat("plan", job, "--json").stdout)
    for key in ("scheduler", "engine", "launcher"):
        assert foretold["plan"][key] == planned[key]


def test_a_node_that_does_not_see_the_store_is_known_beforehand(small: Desk, tmp_path: Path) -> None:
    store = (Path("/tmp") / tmp_path.name if TREE else tmp_path) / "own-store"  # the login node's own
    done = small.bareboat("doctor", "--compute", "--store", store, code=3)
    assert f"{store} does not exist on the compute node" in done.stdout
    refused = small.bareboat("submit", "--store", store, small.job("unseen", SLEEPS), code=3)
    assert f"the compute nodes do not see {store}" in refused.stderr
    assert "--store DIR on a file system that all nodes share" in refused.stderr
    assert not list((store / "runs").glob("unseen*"))


def test_a_job_waits_for_the_runs_that_it_names(small: Desk) -> None:
    """By the name of a run and by a job's number; what nobody knows is refused before submission."""
    words = ["sh", "-c", "sleep 3; date +%s%N > first"]
    first = small.submit(small.job("first", words, nodes=1, ranks_per_node=1))
    number = small.status(first)["job_id"]
    words = ["sh", "-c", "cat first; date +%s%N"]
    more = f'[scheduling]\nafter = ["{first}", "{number}"]'
    second = small.submit(small.job("second", words, nodes=1, ranks_per_node=1, more=more))
    script = (small.store / "runs" / second / "control" / "job.sh").read_text()
    assert f"--dependency=afterok:{number}\n" in script
    before, after = small.wait(second).split()
    assert int(before) < int(after)
    runs = set((small.store / "runs").iterdir())
    for unknown in ("nobody-20260101-000000", "99999"):
        more = f'[scheduling]\nafter = ["{unknown}"]'
        job = small.job("third", words, nodes=1, ranks_per_node=1, more=more)
        refused = small.bareboat("submit", job, code=2)
        assert f'scheduling.after: "{unknown}" is neither a run in this store' in refused.stderr
    assert set((small.store / "runs").iterdir()) == runs


def test_a_job_that_waits_for_one_that_fails_ends_with_the_reason(small: Desk) -> None:
    how = {"nodes": 1, "ranks_per_node": 1}
    first = small.submit(small.job("fails-late", ["sh", "-c", "sleep 4; exit 3"], **how))
    more = f'[scheduling]\nafter = ["{first}"]'
    second = small.submit(small.job("never", ["true"], more=more, **how))
    small.wait(first, code=3)
    small.bareboat("wait", second, code=1)
    status = small.status(second)
    assert (status["state"], status["exit_code"]) == ("dependency failed", 1)
    assert "DependencyNeverSatisfied" in status["reason"]
    assert "run the job that failed again" in status["reason"]


def test_cancel_names_what_it_could_cancel(small: Desk) -> None:
    words = ["sleep", "300"]
    older, newest = (
        small.submit(small.job(name, words, nodes=1, ranks_per_node=1)) for name in ("older", "newest")
    )
    done = small.bareboat("cancel", code=2)
    assert f"not finished: {newest}, {older}" in done.stderr
    assert f"try: bareboat cancel {newest}" in done.stderr
    small.bareboat("cancel", newest, older)
    small.wait(newest, code=143)
