"""Whatever tools print: no parser fails but with an error of ours, and an odd line costs no good line."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import make_site
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bareboat import registry
from bareboat.gpu import find
from bareboat.model import EngineFacts, JobState, Outcome, SchedulerFacts
from bareboat.probe import compute, fabrics, mpis, permits
from bareboat.probe.machine import probe_engine
from bareboat.schedulers.tool_output import odd_lines
from bareboat_base import codec
from bareboat_base.errors import BareboatError, PlanError, ToolError
from bareboat_base.files.mounts import Mount
from bareboat_images import place

SCHEDULERS = [name for name in registry.names("schedulers") if name != "local"]
JOB_IDS = {"slurm": "17_3", "gridengine": "17.3", "pbs": "17[3].s", "flux": "ƒ17"}

#: Lines as tools print them, from which odd ones are made.
LINES = (
    "gpu|64+|256000|gpu:a100:4(S:0-1)", "main|128|512000|(null)",
    "PartitionName=gpu Default=YES State=UP TotalNodes=4 MaxNodes=2 MaxTime=1-00:00:00 AllowAccounts=a,b",
    "MaxArraySize            = 1001", "AccountingStorageType   = accounting_storage/slurmdbd",
    "17_3|RUNNING|None|n1", "17_[1,4-6%2]|PENDING|Priority|", "17_3|CANCELLED by 1000|None|n1",
    "17.3 0.5 job alice r 11/23/2026 01:00:00 all.q@n1 1 3", "all.q 0.01 0 0 8 8 0 0",
    "jobnumber    17", "taskid  3", "exit_status  0", "failed  0", "====", "pe_name mpi", "slots 999",
    "allocation_rule $pe_slots", "control_slaves TRUE", "max_aj_tasks 75000", "gpu gpu INT <= YES YES 0 0",
    "Job Id: 17[3].s", "    job_state = R", "    exec_host = n1/0", "    Exit_status = 7", "Queue: main",
    "    queue_type = Execution", "    resources_max.walltime = 01:00:00", "    resources_max.nodect = 4",
    "batch*|y|y|1800.0|inf|0-inf|0|inf|0-inf", "ƒ17|RUN||n1|n1|||||||",
    "17;cluster", "17", "17.s", "slurm 24.11.5", "pbs_version = 20.0.1",
    "mpirun (Open MPI) 4.1.4", "HYDRA build details:", "    Version:  4.0.2",
    "path:prefix:/usr", "ompi:version:full:4.1.4", "mca:pmix:ext3x:version:mca:2.1.0",
    "config:cli:'--with-x'", "Intel(R) MPI Library Version 2021",
    "user namespace\t\t0\t", "overlay\tmount(overlay)\t1\ttext", "locked memory\t8192",
    "/sys/class/infiniband/mlx5_0/ports/1/rate\t100 Gb/sec (4X EDR)", "/sys/class/net/eth0/speed\t1000",
    "/sys/class/infiniband/mlx5_0/ports/1/state\t4: ACTIVE",
    "\tlibm.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libm.so.6", "podman version 4.3.1",
    "apptainer version 1.4.5", "bareboat 0123456789abcdef0123456789abcdef", "hostname n1", "cpus 64",
    "load 0.5",
    "mem_kb 1000", "place 1 2 3 /tmp", "real /tmp", "kernel 6.1", "mount 1 2 3:4 / / rw - ext4 /dev/a rw",
    "/mnt 1 2 3 - 4 5 6 -", "/dev/sda1 10* 20 30 0 1 2 3 0", "name,1000,1,2,3,4",
)  # fmt: skip
_ODD = st.sampled_from(
    ["²", "9" * 30, "9" * 5000, "-1", "nan", "|", "||||||||", "\0", "\t\t\t", ":", "::::::::", "=", " = ",
     "99999999999999-1:1:1", "\u0661\u0667|RUNNING|x|y",
     "\x1b[31m", "17_[0-999999999]", "\u2028", "", "a" * 3000, "\udcff\udcfe", "{"]
)  # fmt: skip
_BYTES = st.binary(max_size=60).map(lambda data: data.decode("utf-8", "surrogateescape"))


@st.composite
def _line(draw: st.DrawFn) -> str:
    """A line that is good, cut, doubled, or has something odd at some place in it."""
    line = draw(st.sampled_from(LINES))
    at = draw(st.integers(0, len(line)))
    match draw(st.integers(0, 5)):
        case 0:
            return line
        case 1:
            return line[:at]
        case 2:
            return line[at:] + line
        case 3:
            return line[:at] + draw(_ODD) + line[at:]
        case 4:
            return line[:at] + draw(_ODD)
        case _:
            return draw(_BYTES)


TEXTS = st.lists(_line(), max_size=8).map("\n".join)
OUTCOMES = st.builds(
    lambda out, err, code: Outcome(argv=("tool", "-x"), exit_code=code, stdout=out, stderr=err, wall_s=0.0),
    TEXTS, TEXTS, st.sampled_from([0, 0, 0, 1, 255, -9]),
)  # fmt: skip
fuzzed = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
few = settings(fuzzed, max_examples=20)


class FakeMachine:
    """A machine whose tools print such things."""

    user = "ada"

    def __init__(self, draw: Callable[[], Outcome], folder: Path, missing: Sequence[str] = ()) -> None:
        self.draw, self.folder, self.missing = draw, folder, missing

    def which(self, name: str) -> str | None:
        return None if name in self.missing else f"/bin/{name}"

    def run(self, argv: Sequence[str]) -> Outcome:  # noqa: ARG002
        return self.draw()

    def run_all(self, questions: Sequence[Sequence[str]]) -> list[Outcome]:
        return [self.draw() for _ in questions]

    def shell(self, script: str) -> str:  # noqa: ARG002
        return self.draw().stdout

    def scratch(self) -> str:
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        return str(folder)

    def user_namespace_obstacle(self) -> tuple[str, str] | None:
        return None

    def for_one_subject(self) -> "FakeMachine":
        return self


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest.mark.parametrize("name", SCHEDULERS)
@given(data=st.data())
@fuzzed
def test_probes_of_schedulers(name: str, folder: Path, data: st.DataObject) -> None:
    missing = ["qconf"] if name == "pbs" else []
    facts = registry.scheduler(name).probe(FakeMachine(lambda: data.draw(OUTCOMES), folder, missing))
    assert facts is not None
    read = codec.from_json(codec.to_json(facts), SchedulerFacts, what="facts")
    assert [each.name for each in read.partitions] == [each.name for each in facts.partitions]
    assert all(len(each) < 400 for each in facts.remarks)
    assert len(facts.version) <= 60


@pytest.mark.parametrize("name", SCHEDULERS)
@given(outcome=OUTCOMES)
@fuzzed
def test_answers_about_jobs(name: str, outcome: Outcome) -> None:
    scheduler = registry.scheduler(name)
    for query in scheduler.queries([JOB_IDS[name], JOB_IDS[name].replace("3", "4")]):
        with contextlib.suppress(ToolError):
            for entry in query.parse(outcome):
                assert isinstance(entry.state, JobState)
        assert all(isinstance(line, str) for line in query.odd(outcome))


@pytest.mark.parametrize("name", SCHEDULERS)
@given(outcome=OUTCOMES)
@fuzzed
def test_answers_to_submissions(name: str, outcome: Outcome) -> None:
    with contextlib.suppress(BareboatError):
        registry.scheduler(name).job_id(outcome)


@pytest.mark.parametrize("name", ["podman", "apptainer", "charliecloud", "udocker"])
@given(data=st.data())
@few
def test_probes_of_engines(name: str, folder: Path, data: st.DataObject) -> None:
    for facts in probe_engine(name, FakeMachine(lambda: data.draw(OUTCOMES), folder)):
        assert len(facts.detail) <= 1000
        codec.from_json(codec.to_json(facts), EngineFacts, what="facts")


@given(text=TEXTS)
@fuzzed
def test_other_parsers(text: str) -> None:
    mpis.parse_version(text)
    with contextlib.suppress(ToolError):
        mpis.parse_ompi_info(text)
    permits.parse(text)
    codec.to_json(fabrics.parse(text))
    mount = Mount(point="/mnt", source="/dev/fs", kind="nfs", options=())
    for parse in (place.parse_quota, place.parse_lfs_quota):
        parse(text, mount)


@given(data=st.binary(max_size=400), start=st.booleans())
@fuzzed
def test_the_loaders_cache(data: bytes, start: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    top = tmp_path_factory.mktemp("machine")
    (top / "etc").mkdir()
    (top / "dev").mkdir()
    (top / "dev/nvidia0").touch()
    (top / "etc/ld.so.cache").write_bytes(
        (b"glibc-ld.so.cache1.1" if start else b"") + data + b"libcuda.so\0"
    )
    (driver,) = find.find(str(top), machine="x86_64")
    assert driver.notes


@given(data=st.data())
@few
def test_facts_of_a_compute_node(data: st.DataObject, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "names", lambda _: ("native",))
        host: Any = FakeMachine(lambda: data.draw(OUTCOMES), folder)
        store: Any = type("Store", (), {"root": folder, "own": folder})
        with contextlib.suppress(ToolError):
            codec.to_json(compute._site(host, store, make_site()))


#: Scheduler -> what it answers to a submission, with a site's notices, and the number.
ACCEPTED = {
    "slurm": {
        "17\n": "17", "17;cluster2\n": "17", "Job cost: 12 credits\n17;cluster2\n": "17",
        "*** Maintenance on Monday ***\n2026\nyour quota: 90 %\n17\n": "17",
    },
    "gridengine": {
        "5\n": "5", "5.1-3:1\n": "5", "** Welcome to the 2026 cluster **\n5\n": "5",
        "quota 93 percent\n\n5\n": "5",
    },
    "pbs": {
        "17.server.example.org\n": "17.server.example.org", "17\n": "17", "17[].pbs01\n": "17[].pbs01",
        "Welcome.\n100.0 % of your quota is used\n\n17.pbs01\n": "17.pbs01", "2026\n17.pbs01\n": "17.pbs01",
    },
    "flux": {"ƒ2Yd8b\n": "ƒ2Yd8b", "f2Yd8b\n": "f2Yd8b", "frontier\nƒ2Yd8b\n": "ƒ2Yd8b", "17\n": "17"},
}  # fmt: skip
REJECTED = {
    "slurm": "sbatch: error: invalid partition specified: nowhere",
    "gridengine": 'Unable to run job: unknown queue "nowhere".',
    "pbs": "qsub: Unknown queue",
    "flux": "flux-batch: ERROR: [Errno 22] unsatisfiable request",
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_number_of_a_job_is_found_or_missed(name: str) -> None:
    def number(stdout: str, stderr: str = "", code: int = 0) -> str:
        answer = Outcome(argv=("x",), exit_code=code, stdout=stdout, stderr=stderr, wall_s=0.0)
        return registry.scheduler(name).job_id(answer)

    assert {text: number(text) for text in ACCEPTED[name]} == ACCEPTED[name]
    for text in ("", "job accepted\n", "Your job has been submitted\n"):
        with pytest.raises(ToolError):
            number(text)
    with pytest.raises(PlanError) as caught:
        number("", REJECTED[name], 1)
    assert REJECTED[name] in caught.value.context


def test_many_odd_lines_are_counted() -> None:
    assert odd_lines("sinfo", ["a"] * 100)[-1] == "sinfo printed 97 more such lines"


def same(outcome: Outcome, *_: object) -> Outcome:
    return outcome


@pytest.mark.thorough
def test_long_lines_take_no_time() -> None:
    """Patterns that take the square of a line's length would take hours."""
    long = "a" * 1_000_000
    for text in (long, " " * 1_000_000, "1" * 1_000_000, "|" * 1_000_000, "=" * 1_000_000, "\n" * 1_000_000):
        outcome = Outcome(argv=("tool",), exit_code=0, stdout=text, stderr="", wall_s=0.0)
        for name in SCHEDULERS:
            scheduler = registry.scheduler(name)
            for query in scheduler.queries([JOB_IDS[name]]):
                with contextlib.suppress(ToolError):
                    query.parse(outcome)
                query.odd(outcome)
            with contextlib.suppress(BareboatError):
                scheduler.job_id(outcome)
            machine = FakeMachine(
                functools.partial(same, outcome), Path("/nowhere"), ["qconf"] * (name == "pbs")
            )
            scheduler.probe(machine)
        mpis.parse_version(text)
