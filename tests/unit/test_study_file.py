"""Study files: arms, factors and metrics, and what each mistake is told with."""

from pathlib import Path
from typing import Any

import pytest
from builders import make_job

from bareboat import config
from bareboat.jobfile import read_job
from bareboat.model import Contrast
from bareboat_base.errors import UsageError
from bareboat_base.toml import TomlFile
from bareboat_study.studyfile import StudyRequest, is_study, read_study, study_of_job

ARMS = '[arms]\nbare = {engine = "native"}\nsif = {engine = "apptainer", form = "file"}\n'


def settings(folder: Path, **flags: Any) -> config.Settings:
    return config.resolve(flags, folder=folder, environment={"HOME": str(folder / "nobody")})


def read(folder: Path, text: str, *, image: str | None = None, **flags: Any) -> StudyRequest:
    path = folder / "study.toml"
    path.write_text(text)
    return read_study(TomlFile(path), settings(folder, **flags), image=image)


def refused(
    folder: Path, text: str, message: str, *, line: int | None = None, remedy: str = ""
) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    error = caught.value
    assert message in error.message
    if line is not None:
        assert f"line {line}" in error.context
    assert error.remedy
    assert remedy in error.remedy
    return error


def test_each_arm_at_each_point_is_a_job_of_its_own(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        'command = "echo --batch={batch} {{x}}"\n'
        "[arms]\n"
        'bare = {engine = "native"}\n'
        "plain = {}\n"
        'one = {environment = {OMP_NUM_THREADS = "1"}, "topology.cpus_per_rank" = 1}\n'
        '[environment]\nTAG = "b{batch}"\n'
        '[sweep]\nbatch = [32, 64]\n"topology.ranks_per_node" = [1, 2]\n',
    )
    assert found.arms == ("bare", "plain", "one")
    assert found.factors == ("batch", "topology.ranks_per_node")
    assert found.points == ((32, 1), (32, 2), (64, 1), (64, 2))
    assert found.contrasts == (Contrast(baseline=0, contender=1), Contrast(baseline=0, contender=2))
    job = found.jobs[2][0]
    assert job.command == ("echo", "--batch=64", "{x}")
    assert job.environment["TAG"] == "b64"
    assert job.environment["BAREBOAT_SWEEP_BATCH"] == "64"
    assert job.environment["BAREBOAT_SWEEP_INDEX"] == "2"
    assert [row[0].topology.ranks_per_node for row in found.jobs] == [1, 2, 1, 2]
    assert [job.engine for job in found.jobs[0]] == ["native", None, None]
    assert [job.topology.cpus_per_rank for job in found.jobs[0]] == [None, None, 1]
    assert found.jobs[0][2].environment["OMP_NUM_THREADS"] == "1"
    assert [[*own] for own in found.keys] == [["engine"], [], ["environment", "topology.cpus_per_rank"]]


def test_without_arms_it_is_bare_metal_and_the_container(tmp_path: Path) -> None:
    found = read(tmp_path, 'command = ["echo", "{n}"]\n[sweep]\nn = [1]\n')
    assert found.arms == ("bare metal", "container")
    assert [job.engine for job in found.jobs[0]] == ["native", None]


def test_a_job_without_arms_points_or_metrics_is_no_study_of_this_kind(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    for text, expected in (
        ('command = ["true"]\n[prove]\nrepeats = 3\n', False),
        ('command = ["true"]\n' + ARMS, True),
        ('command = ["true"]\n[sweep]\nn = [1]\n', True),
        ("command = ['true']\n[metrics.a]\npattern = '(.)'\n", True),
        ('command = ["true"]\n[prove]\nbaseline_python = "python3"\n', True),
        ('command = ["true"]\n[prove]\nwithin_s = "2h"\n', True),
    ):
        path.write_text(text)
        assert is_study(TomlFile(path)) is expected


def test_other_commands_accept_a_study_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("command = ['true']\n" + ARMS + "[metrics.a]\npattern = '(.)'\n")
    assert read_job(path, settings(tmp_path)).command == ("true",)
    path.write_text('command = ["true"]\n[sweep]\n"topology.nodes" = [1, 2]\n')
    with pytest.raises(UsageError, match="which only a study can vary"):
        read_job(path, settings(tmp_path))


def test_metrics_are_read_with_their_files_at_each_point(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "command = ['echo', '{n}']\n[sweep]\nn = [4, 5]\n"
        "[metrics.speed]\npattern = 'speed ([0-9.]+)'\nunit = 'MB/s'\n"
        "[metrics.loss]\nseries = '(?P<x>.) (?P<y>.)'\n"
        "[metrics.iops]\nfile = 'out-{n}.json'\nkey = '/jobs/0'\nprimary = true\nbetter = 'lower'\n",
    )
    assert [metric.name for metric in found.metrics[0]] == ["speed", "loss", "iops"]
    assert [metrics[2].file for metrics in found.metrics] == ["out-4.json", "out-5.json"]
    assert not found.metrics[0][2].higher_is_better
    assert found.metrics[0][1].is_curve


def test_the_design_comes_from_flags_over_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, "command = ['true']\n" + ARMS + "[prove]\nrepeats = 4\nseed = 9\n", repeats=7)
    assert (found.prove.repeats, found.prove.seed) == (7, 9)
    assert all(job.prove.repeats == 7 for job in found.jobs[0])


# Images that were pulled.


def test_bare_metal_may_have_an_environment_of_its_own_for_a_pulled_image(tmp_path: Path) -> None:
    text = "command = ['true']\nimage = 'debian:12'\n"
    found = read(tmp_path, text + ARMS + "[prove]\nbaseline_python = 'python3'\n")
    assert [job.image for job in found.jobs[0]] == ["capture", "debian:12"]
    assert found.jobs[0][0].capture.python == "python3"
    bare = "command = ['true']\n" + ARMS + "[prove]\nbaseline_python = 'python3'\n"
    refused(tmp_path, bare, "baseline_python has no effect", line=bare.count("\n"))


def test_attribution_has_three_arms_whose_effects_multiply(tmp_path: Path) -> None:
    text = "command = ['true']\nimage = 'debian:12'\n[prove]\nattribution = true\n"
    found = read(tmp_path, text + "baseline_python = 'env/bin/python'\n")
    assert [(job.engine, job.image) for job in found.jobs[0]] == [
        ("native", "capture"), (None, "capture"), (None, "debian:12"),
    ]  # fmt: skip
    assert found.jobs[0][0].capture.python == str(tmp_path / "env/bin/python")
    assert [(c.baseline, c.contender, c.effect) for c in found.contrasts] == [
        (0, 1, "container"), (1, 2, "software stack"), (0, 2, "both"),
    ]  # fmt: skip
    refused(tmp_path, text + ARMS, "has its own three arms", remedy="remove [arms]")
    refused(tmp_path, "command = ['true']\n[prove]\nattribution = true\n", "the job names none", line=3)


def test_the_example_of_attribution_is_read() -> None:
    folder = Path(__file__).parents[2] / "examples/attribution"
    found = read_study(TomlFile(folder / "attribution.toml"), settings(folder))
    assert found.arms == ("bare metal", "captured", "image")
    assert (folder / found.jobs[0][0].command[1]).exists()


# Mistakes.


@pytest.mark.parametrize(
    ("text", "message", "line", "remedy"),
    [
        ("[arms]\na = {}\nb = {name = 'x'}\n", "unknown key 'name'", 4, "remove name"),
        ("[arms]\na = {}\nb = {'topology.node' = 1}\n", "unknown key 'node'", 4, "nodes"),
        ("[arms]\na = {}\nb = {'image.x' = 1}\n", "'image.x' is not a key of the job", 4, "topology.nodes"),
        (f"[arms]\na = {{}}\n{'b' * 41} = {{}}\n", "has 41 characters", 4, "shorter"),
        ("[sweep]\n'topology.node' = [1]\n", "unknown key 'node'", 3, "nodes"),
        ("[sweep]\n'topology.nodes' = [1, 1]\n", "two points of the study have the same values", 2, "remove"),
        ("[sweep]\n'topology.nodes' = 1\n", "sweep.topology.nodes is 1; it must be a list", 2, ""),
        ("[sweep]\n", "it must be a table of keys", 2, "[sweep]"),
        ("[metrics.a]\npattern = 'x'\n", "metrics.a.pattern has 0 groups", 3, "( )"),
        ("[metrics.a]\npattern = '(a)'\nfile = 'b'\nkey = 'c'\n", "it has pattern and file", 2, ""),
        ("[metrics.a]\nfile = 'b'\n", "needs both file and key", 2, "key"),
        ("[metrics.a]\nkey = 'b'\n", "it has none", 2, ""),
        ("[metrics.a]\nseries = '(?P<x>.)'\n", "must have the groups x and y", 3, "(?P<y>"),
        ("[metrics.a]\nseries = '(?P<x>.)(?P<y>.)'\nprimary = true\n", "is kept as a curve", 2, "pattern"),
        ("[metrics.a]\npattern = '(a)'\nbetter = 'more'\n", "metrics.a.better is 'more'", 4, "higher"),
        ("[metrics.a]\npattern = '(a)'\ntake = 'any'\n", "metrics.a.take is 'any'", 4, "only"),
        ("[metrics.a]\npatern = '(a)'\n", "unknown key 'patern'", 3, "pattern"),
        ("[metrics]\na = 1\n", "metrics.a must be a table", 3, "[metrics.NAME]"),
        ("[prove]\nscaling = 'n'\n[sweep]\n'topology.nodes' = [1, 2]\n", "'n', which is not a factor", 3,
         "topology.nodes"),
        ("[prove]\nscaling = 'form'\n[sweep]\nform = ['tree', 'file']\n", "is no number of workers", 3,
         "numbers above 0"),
        (ARMS + "[sweep]\n'topology.nodes' = [" + ",".join(map(str, range(1, 3001))) + "]\n",
         "3,000 points of 2 arms are more than 5,000", 5, "several study files"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_line(
    tmp_path: Path, text: str, message: str, line: int, remedy: str
) -> None:
    refused(tmp_path, "command = ['true']\n" + text, message, line=line, remedy=remedy)


def test_a_job_that_cannot_be_at_one_point_names_arm_and_point(tmp_path: Path) -> None:
    text = "command = ['true']\n" + ARMS + "[sweep]\n'topology.nodes' = [1, 2000000]\n"
    error = refused(tmp_path, text, "topology.nodes is 2000000")
    assert "arm bare; point nodes=2000000" in error.context


def test_a_file_in_the_image_cannot_be_read(tmp_path: Path) -> None:
    text = "image = 'x'\nworkdir = 'image'\n[arms]\na = {engine = 'podman'}\nb = {}\n[metrics.a]\nkey = 'k'\n"
    refused(tmp_path, text + "file = 'out.json'\n", "the job's working directory is the image's own", line=8)
    assert read(tmp_path, text + "file = '/data/out.json'\n").metrics


def test_a_job_is_a_study_of_two_arms_at_one_point() -> None:
    found = study_of_job(make_job())
    assert (found.arms, found.points, [*found.keys[0]]) == (("bare metal", "container"), ((),), ["engine"])
    assert [job.engine for job in found.jobs[0]] == ["native", None]
    same = study_of_job(make_job(engine="native"))
    assert same.arms == ("bare metal A", "bare metal B")
    assert same.jobs[0][0] == same.jobs[0][1]
