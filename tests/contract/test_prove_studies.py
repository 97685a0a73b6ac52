"""`bareboat prove` of study files: several arms and points, on real processes and a real container."""

import itertools
import json
import random
import re
import signal
import time
from pathlib import Path

import pytest
from images import busybox
from processes import left_after
from tools import tool
from trainings import Project, write_training

from bareboat_study import listing, matrix

pytestmark = pytest.mark.thorough

ARMS = '[arms]\nbare = {engine = "native"}\nbubblewrap = {engine = "bubblewrap"}\n'
#: Prints a number, and writes one; both are the same in all arms.
PROGRAM = """
import json, os, sys
size = int(sys.argv[1])
with open("runs", "a") as file:
    file.write(f"{size} {'BAREBOAT_IMAGE' in os.environ}\\n")
for step in range(3):
    print(f"step {step} loss {1 / (step + 1)}")
print(f"speed: {100 + size} images/s")
json.dump({"rates": [size]}, open("out.json", "w"))
"""


def write(project: Project, text: str, *, program: str = PROGRAM) -> Path:
    (project.folder / "program.py").write_text(program)
    job = project.folder / "study.toml"
    job.write_text(f'name = "{project.folder.name}"\n{text}')
    return job


GRID = (
    'command = ["python", "program.py", "{size}"]\n'
    + ARMS
    + 'other = {environment = {X = "1"}}\n'
    + "[sweep]\nsize = [1, 2]\n"
    + "[metrics.speed]\npattern = 'speed: ([0-9.]+)'\nunit = 'images/s'\n"
    + "[metrics.loss]\nseries = 'step (?P<x>.) loss (?P<y>.*)'\n"
    + "[metrics.rate]\nfile = 'out.json'\nkey = '/rates/0'\n"
    + "[prove]\nrepeats = 2\n"
)
#: For what any study shows: its report, which takes longest, has two sections and not four.
SMALL = GRID.replace('other = {environment = {X = "1"}}\n', "")


def test_three_arms_at_two_points_with_metrics_of_an_unmodified_program(project: Project) -> None:
    code, out, err = project.prove(write(project, GRID))
    assert code == 0, err
    found, records = project.study()
    assert [(r.run, r.arm) for r in records[1]] == [(run, arm) for run in range(3) for arm in found.arms]
    assert all(record.results == {"speed": 102.0, "rate": 2.0} for record in records[1])
    assert all(record.series["loss"][1] == (1.0, 0.5) for own in records for record in own)  # type: ignore[index]
    assert "speed of bubblewrap / bare: equivalent within 2 % at 0 of 2 points, undecided at 2" in out
    assert [line for line in out.splitlines()[3:-1] if len(line) > 80] == []
    # Warm-ups first, then each repeat has each point with all arms together.
    runs = [line.split()[0] for line in (project.folder / "runs").read_text().splitlines()]
    points = [runs[at] for at in range(0, len(runs), 3)]
    assert runs == [point for point in points for _ in range(3)]
    assert [sorted(points[at : at + 2]) for at in (0, 2, 4)] == [["1", "2"]] * 3
    assert (project.folder / "report.html").exists()
    log = project.store.run(found.point_id(0)) / "0001/contender-2.log"
    assert "speed: 101 images/s" in log.read_text()
    code, again, _ = project.do("report", "--json", found.id)
    assert code == 0
    assert json.loads(again)["contrasts"][1]["undecided"] == 2
    code, listed, _ = project.do("report", "--json")
    assert {each["run_id"]: each["state"] for each in json.loads(listed)}[found.id] == "complete"


def test_metered_arms_take_turns_three_at_a_time(project: Project) -> None:
    write_training(project.folder, extra="step == 50 and print('accuracy: 0.5')")
    arms = ARMS + 'third = {environment = {X = "1"}}\n'
    text = f'command = ["python", "train.py"]\n{arms}[metrics.accuracy]\npattern = "accuracy: (.*)"\n'
    code, out, err = project.prove(write(project, text + "[prove]\nrepeats = 2\nwindow_s = 0.02\n"))
    assert code == 0, err
    found, (records,) = project.study()
    for run in (1, 2):
        spans = sorted(
            (w.began_s, w.began_s + sum(w.step_s), r.arm, w.block)
            for r in records
            if r.run == run
            for w in r.windows
        )
        for (_, end, *_), (begin, *_) in itertools.pairwise(spans):
            assert begin >= end
        first = [arm for _, _, arm, block in spans if block == 0]
        assert sorted(first) == sorted(found.arms)
    assert "third / bare" in out  # on a busy machine the ratio may be withheld
    assert "\nthroughput  " in out


def test_a_study_killed_again_and_again_counts_no_run_twice(project: Project) -> None:
    job = write(project, SMALL)
    draw = random.Random(4)
    store = project.store
    for _ in range(4):
        running = project.start(*(["--resume"] if project.studies() else []), job)
        time.sleep(draw.uniform(0.3, 3.0))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert left_after(project.folder.name) == []
    code, _, err = project.prove(*(["--resume"] if project.studies() else []), job)
    assert code == 0, err
    each_study = [matrix.read(store, run) for run in project.studies()]
    done = [each for each in each_study if not matrix.missing(store, each)]
    for own in matrix.measured(store, done[-1])[1]:
        assert [(r.run, r.arm) for r in own] == [(run, arm) for run in range(3) for arm in done[-1].arms]
    listed = listing.look(store, done[-1].id)
    assert (listed.name, listed.state, listed.done, listed.total) == (project.folder.name, "complete", 6, 6)
    code, out, err = project.do("status", done[-1].id, "--json")
    assert code == 0, err
    assert json.loads(out)[0]["state"] == "complete"
    assert (store.run(done[-1].id) / "provenance.json").exists()


def test_runs_that_fail_are_kept_and_the_study_goes_on(project: Project) -> None:
    """The container's arm fails in its second run and prints nothing in its third."""
    program = (
        "import os, sys\n"
        "inside = 'BAREBOAT_IMAGE' in os.environ\n"
        "open(f'count-{inside}', 'a').write('x')\n"
        "number = os.path.getsize(f'count-{inside}')\n"
        "if inside and number == 3: print('no memory'); sys.exit(9)\n"
        "if not (inside and number == 4): print('v', 5)\n"
    )
    text = f'command = ["python", "program.py"]\n{ARMS}[metrics.v]\npattern = "v (.)"\n[prove]\nrepeats = 4\n'
    code, out, err = project.prove(write(project, text, program=program))
    assert code == 12, err
    _, (records,) = project.study()
    failed = [(r.run, r.arm, r.exit_code, bool(r.ended_because)) for r in records if r.ended_because]
    assert failed == [(2, "bubblewrap", 9, True), (3, "bubblewrap", 0, True)]
    assert "2 runs are too few to decide" in out
    assert "failed runs: 2, in no number above" in out
    assert "run 2 of bubblewrap: the job ended with exit code 9" in out
    assert "run 3 of bubblewrap: metrics.v: the pattern matches nothing in the output" in out


def test_an_arm_that_cannot_run_at_one_point_is_one_message_with_the_point(project: Project) -> None:
    text = (
        f'command = ["sh", "-c", "test {{n}} != 2 || exit 3; echo v {{n}}"]\n{ARMS}[sweep]\nn = [1, 2]\n'
        '[metrics.v]\npattern = "v (.)"\n[prove]\nrepeats = 2\n'
    )
    code, out, err = project.prove(write(project, text))
    assert (code, out) == (3, "")
    assert "the job ended with exit code 3\n  point n=2" in err
    assert "resume with: bareboat prove --resume" in err
    assert f"after a change of {project.folder}/study.toml: bareboat prove {project.folder}/study.toml" in err


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('speed 1')", "metrics.v: the pattern matches nothing in the output"),
        ("print('v 1'); print('v 2')", "metrics.v: the pattern matches 2 times in the output: 1, 2"),
        ("import os\nif 'BAREBOAT_IMAGE' in os.environ: print('v 1')", "; it is there in bubblewrap"),
        ("import os, sys\nsys.exit(4 if 'BAREBOAT_IMAGE' in os.environ else print('v 1'))",
         "bubblewrap: the job ended with exit code 4"),
        ("print('v 0')", "metrics.v is 0: the primary metric must be a number above 0"),
    ],
)  # fmt: skip
def test_the_warm_up_finds_what_cannot_be_measured(project: Project, program: str, message: str) -> None:
    text = f'command = ["python", "program.py"]\n{ARMS}[metrics.v]\npattern = "v (.)"\n[prove]\nrepeats = 2\n'
    job = write(project, text, program=program)
    code, out, err = project.prove(job)
    assert code not in (0, 70)
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    # Repaired, the same study continues.
    (project.folder / "program.py").write_text("print('v 1')\n")
    code, _, err = project.prove("--resume", job)
    assert code == 0, err


def test_the_time_sets_the_repeats(project: Project) -> None:
    text = f'command = ["python", "program.py", "1"]\n{ARMS}[metrics.v]\npattern = "speed: ([0-9]+)"\n'
    slow = "import os, time\nmark = f\"slow-{'BAREBOAT_IMAGE' in os.environ}\"\n"
    slow += "if not os.path.exists(mark):\n    open(mark, 'w').close()\n    time.sleep(0.7)\n"
    job = write(project, text, program=slow + PROGRAM)
    page = project.folder / "page.html"
    code, _, err = project.prove("--within", "1s", "-o", str(page), job)
    assert code == 2, err
    assert "stopped after the warm-up, which is kept\nafter a change of" in err
    study, _ = project.study()
    (proposed,) = re.findall(f"try: bareboat prove (--resume {study.id} --within .*)   #", err)
    (image,) = study.images
    for removed in (project.store.entry(image.digest), project.store.flat(image.digest)):
        project.store.discard(removed)
    for words in (["--dry-run"], []):
        code, _, err = project.do("prove", "--resume", *words, study.id)
        assert (code, "of the study is no longer in the store\n  arm bubblewrap\n" in err) == (4, True), err
    assert f"try: bareboat image capture --fresh --python {project.python}; or a new study" in err
    assert project.do("image", "capture", "--fresh", "--python", project.python)[0] == 0
    code, _, err = project.prove(*proposed.split(), "--dry-run")
    assert code == 0, err
    code, _, err = project.prove(*proposed.split())
    assert (code, page.exists()) == (0, True), err
    study, (records,) = project.study()
    assert study.repeats is not None
    assert study.repeats >= 2
    assert len(records) == 2 * (study.repeats + 1)


def test_a_dry_run_shows_the_design_and_plans_every_arm_at_every_point(project: Project) -> None:
    code, out, err = project.prove("--dry-run", write(project, GRID))
    assert code == 0, err
    assert "2 points and 3 arms: 1 warm-up and 2 repeats: 18 runs" in out
    assert not (project.folder / "runs").exists()
    job = write(project, GRID.replace('"{size}"]', '"{size}"]\nengine = "native"'))
    code, _, err = project.prove("--dry-run", job)
    assert code == 0, err
    same = GRID.replace('environment = {X = "1"}', 'engine = "bubblewrap"')
    code, _, err = project.prove("--dry-run", write(project, same))
    assert (code, "'bubblewrap' and 'other' have the same plan" in err) == (0, True)
    wrong = GRID + '\n[sweep]\n"capture.python" = ["python3", "no-such-python"]\n'
    code, _, err = project.prove("--dry-run", write(project, wrong.replace("[sweep]\nsize = [1, 2]\n", "")))
    assert code not in (0, 70)


def test_a_changed_file_is_told(project: Project) -> None:
    job = write(project, SMALL)
    assert project.prove(job)[0] == 0
    study, _ = project.study()
    code, _, err = project.prove("--resume", write(project, SMALL.replace("[1, 2]", "[1, 3]")))
    assert (code, "the job changed since it began" in err, study.id in err) == (2, True, True)
    code, _, err = project.prove("--resume", "--margin", "0.5", study.id)
    assert (code, "--margin cannot change the study" in err) == (2, True)


# Images that were pulled.


def test_the_container_and_the_stack_are_told_apart(project: Project) -> None:
    (project.folder / "image.tar").write_bytes(busybox(only_here=b"x"))
    text = (
        'command = ["sh", "-c", "test -e /only_here && echo v 5 || echo v 10"]\n'
        f'image = "rootfs:{project.folder}/image.tar"\n'
        '[metrics.v]\npattern = "v ([0-9]+)"\n[prove]\nrepeats = 2\nattribution = true\n'
    )
    code, out, err = project.prove("--json", write(project, text))
    assert code == 0, err
    found = json.loads(out)
    effects = {each["effect"]: each["points"][0]["metrics"][0]["comparison"] for each in found["contrasts"]}
    ratios = [effects[name]["ratio"] for name in ("container", "software stack", "both")]
    assert ratios == pytest.approx([1.0, 0.5, 0.5])
    assert found["sentences"][0].startswith("container: undecided")
    assert re.match("software stack: different.*: v of image is 50.0 % lower", found["sentences"][1])
    _, (records,) = project.study()
    digests = {record.arm: record.image_digest for record in records}
    assert digests["bare metal"] == digests["captured"] != digests["image"]


def test_two_containers_of_an_image_need_no_bare_metal(project: Project) -> None:
    (project.folder / "image.tar").write_bytes(busybox())
    image = f'command = ["sh", "-c", "echo v 5"]\nimage = "rootfs:{project.folder}/image.tar"\n'
    metric = '[metrics.v]\npattern = "v (.)"\n[prove]\nrepeats = 2\n'
    arms = '[arms]\na = {engine = "bubblewrap"}\nb = {environment = {X = "1"}}\n'
    code, out, err = project.prove(write(project, image + arms + metric))
    assert code == 0, err
    assert "v of b / a is 1.0000" in out


def test_bare_metal_has_the_programs_of_the_machine_not_those_of_an_image(project: Project) -> None:
    (project.folder / "image.tar").write_bytes(busybox())
    image = f"rootfs:{project.folder}/image.tar"
    code, _, err = project.prove("--repeats=2", "--image", image, "--", "sh", "-c", "echo v 5")
    assert code == 0, err
    assert err.count(": this machine's own programs, not those of the image") == 1
    page = (project.folder / "report.html").read_text()
    assert "bubblewrap) and programs (those of the machine, those of the image)." in page


# Programs that know nothing of Bareboat.


def third_party(project: Project, text: str) -> dict[str, object]:
    job = write(project, text + "[prove]\nrepeats = 2\nmargin = 0.5\nconfidence = 0.9\n")
    code, out, err = project.prove("--json", job)
    assert code == 0, err
    assert "a margin of 50%: arms that differ by less are called equivalent" in err
    (contrast,) = json.loads(out)["contrasts"]
    found: dict[str, object] = {m["name"]: m for m in contrast["points"][0]["metrics"]}
    return found


def test_openssl_speed_by_a_pattern(project: Project) -> None:
    tool("openssl")
    command = 'command = "openssl speed -seconds 1 -bytes 1024 sha256"\n'
    pattern = r"'^sha256\s+([0-9.]+)k'"
    found = third_party(project, f"{command}{ARMS}[metrics.sha256]\npattern = {pattern}\nunit = 'kB/s'\n")
    assert found["sha256"]["primary"]  # type: ignore[index]
    assert min(found["sha256"]["baseline"]) > 1000  # type: ignore[index]


def test_fio_by_its_json(project: Project) -> None:
    tool("fio")
    (project.folder / "data").mkdir()
    command = (
        'command = "fio --name=a --filename=data/f --size=4M --rw=randread --ioengine=psync --runtime=1 '
        '--output-format=json --output=fio-{bs}.json --bs={bs}"\n'
    )
    text = f"{command}{ARMS}[sweep]\nbs = ['4k']\n[metrics.iops]\nfile = 'fio-{{bs}}.json'\n"
    found = third_party(project, text + "key = '/jobs/0/read/iops'\n")
    assert min(found["iops"]["contender"]) > 1  # type: ignore[index]


def test_sysbench_by_a_pattern(project: Project) -> None:
    tool("sysbench")
    text = f'command = "sysbench cpu --time=1 run"\n{ARMS}[metrics.events]\n'
    found = third_party(project, text + r"pattern = 'events per second:\s+([0-9.]+)'" + "\n")
    assert min(found["events"]["contender"]) > 1  # type: ignore[index]
