"""The job scripts as users get them. Each golden file is compared byte by byte, parsed and linted.

After a change that is meant: `pytest tests/golden --update-golden`, then read `git diff tests/golden`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from builders import fake_digest, make_image, make_job, make_rootfs, make_site
from tools import tool

from fairlead import render
from fairlead.model import Job, Mount, Plan, Prefix, Site, Topology
from fairlead.plan import plan

HERE = Path(__file__).parent
ONE = Topology()
#: Everything at once: spaces, quotes, an environment inside the working folder, a mount to write to.
FULL = make_job(
    name="digits, 2 ranks",
    workdir="/home/ada/my digits",
    command=("python", "digits.py", "--note", "it's $5", ""),
    mounts=(
        Mount(source="/data/digits", target="/data"),
        Mount(source="/scratch/ada/out", target="/home/ada/my digits/out", writable=True),
    ),
)
IMAGE = make_image(prefixes=(Prefix(path="/home/ada/my digits/.venv", layer=fake_digest("c")),))


def _site(*, overlay: bool = True) -> Site:
    site = make_site()
    return msgspec.structs.replace(
        site,
        engines=tuple(
            msgspec.structs.replace(facts, overlay=overlay and facts.overlay) for facts in site.engines
        ),
    )


def _plan(job: Job, site: Site) -> Plan:
    return plan(job, IMAGE, make_rootfs(IMAGE), site)


CASES = {
    "bubblewrap-stacked": lambda: _plan(FULL, _site()),
    "bubblewrap-flat": lambda: _plan(FULL, _site(overlay=False)),
    "native": lambda: _plan(msgspec.structs.replace(FULL, engine="native"), _site()),
    "torchrun": lambda: _plan(make_job(topology=ONE, launcher="torchrun"), _site()),
    "single": lambda: _plan(make_job(topology=ONE, command=("bash", "-c", "exit 3")), _site()),
    "single-native": lambda: _plan(make_job(topology=ONE, engine="native"), _site()),
}


@pytest.mark.parametrize("name", CASES)
def test_the_job_script_is_the_golden_one(name: str, request: pytest.FixtureRequest) -> None:
    script = render.script(CASES[name]())
    golden = HERE / f"{name}.sh"
    if request.config.getoption("--update-golden"):
        golden.write_text(script, encoding="utf-8")
    assert script == golden.read_text(encoding="utf-8"), (
        f"{golden.name} differs; when that is meant: pytest tests/golden --update-golden"
    )


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {path.stem for path in HERE.glob("*.sh")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_bash_can_parse_the_golden_script(name: str) -> None:
    done = subprocess.run(
        [tool("bash"), "-n", HERE / f"{name}.sh"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_shellcheck_finds_nothing_in_the_golden_scripts() -> None:
    # Hints are not counted: words of the job hold `$` on purpose, and a trap calls a function unseen.
    # SC2097 and SC2098 are about run_pids, which hides the mark from grep and gives it as an argument.
    options = ["--severity=warning", "--exclude=SC2097,SC2098"]
    scripts = [HERE / f"{name}.sh" for name in CASES]
    done = subprocess.run(
        [tool("shellcheck"), *options, *scripts], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
