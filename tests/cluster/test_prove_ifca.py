"""The built-in study `ifca` on one, two and three nodes of real clusters: three networks in three arms.

pytest tests/cluster/test_prove_ifca.py -m frameworks       # after tests/lab/frameworks.sh --only studies
"""

import json
import shutil
from pathlib import Path

import pytest
from desks import Desk, queue_desk
from tools import LAB

from bareboat_study import builtin

PYTHON = LAB / "frameworks" / "studies" / "bin" / "python"
#: One network, so that it takes minutes; a contract test counts the parameters of the others.
NETWORK, PARAMETERS = "ResNet50", 25_636_712
REPEATS = 2


@pytest.fixture(params=["slurm", "gridengine"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is not there: sudo tests/lab/frameworks.sh --only studies")
    return queue_desk(request, PYTHON, tmp_path.name)


@pytest.mark.frameworks
def test_one_to_three_nodes_with_a_node_killed_in_the_middle(desk: Desk) -> None:
    """Three arms of each point in one job, the same file on both clusters; no run counts twice."""
    shutil.copytree(builtin.packaged("ifca").folder, desk.folder / "ifca")
    file = desk.folder / "ifca" / "cluster.toml"
    text, networks = file.read_text(), '["InceptionV3", "ResNet50", "ResNet101"]'
    assert networks in text
    file.write_text(text.replace(networks, f'["{NETWORK}"]'))
    done = desk.bareboat(
        "prove", file, "--scheduler", desk.scheduler, "--python", PYTHON, "--repeats", str(REPEATS),
        "--no-wait", timeout_s=1200,
    )  # fmt: skip
    study = done.stdout.split()[-1]
    points = desk.store / "runs" / study / "points"

    def complete(point: int) -> int:
        places = (points / str(point), points / str(point) / "control" / "runs")
        return len({path.name for place in places for path in place.glob("[0-9]???")})

    def several() -> list[int]:
        return [point for point in (1, 2) if complete(point)]

    desk.up.wait(several, "a run on several nodes", timeout_s=3600)
    (killed, *_), before = several(), complete(several()[0])
    hosts = (points / str(killed) / "control" / "hosts").read_text().split()
    desk.up.kill_node(hosts[1])
    assert before < 1 + REPEATS
    running = f"{study}.{killed}"
    desk.up.wait(lambda: desk.status(running)["state"] != "running", "the end of its job", timeout_s=600)
    desk.up.restart_node(hosts[1])
    said = desk.bareboat("prove", "--resume", study, timeout_s=3600).stdout
    for point in range(3):
        found = [json.loads(path.read_text()) for path in (points / str(point)).glob("[0-9]???/*.json")]
        assert sorted((each["run"], each["arm"]) for each in found) == [
            (run, arm) for run in range(1 + REPEATS) for arm in ("bare", "container", "udocker")
        ]
        assert all(each["exit_code"] == 0 and not each["ended_because"] for each in found), found
        assert {each["world_size"] for each in found} == {point + 1}
        assert {each["results"]["parameters"] for each in found} == {PARAMETERS}
        for run in range(1 + REPEATS):  # all arms in one start of one job
            assert len({json.dumps(each["starts"]) for each in found if each["run"] == run}) == 1
    assert "images_per_s of container / bare" in said
    assert "images_per_s of udocker / bare" in said
    assert "speed-up" in said
    assert (desk.folder / "report.html").exists()
    print(said)
