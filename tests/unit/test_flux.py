"""Flux's answers, as its manual pages print them (flux-jobs, flux-batch), and what jobs ask it for."""

import os
import subprocess
from pathlib import Path

import pytest
from builders import make_job, make_site

from bareboat.model import SchedulerFacts, Scheduling
from bareboat.schedulers.flux import Flux

flux = Flux()


@pytest.mark.parametrize("table", [{"qos": "a"}, {"account": "a"}, {"mem_per_node_bytes": 2**20}])
def test_what_it_does_not_have_is_refused(table: dict[str, object]) -> None:
    site = make_site(schedulers=(SchedulerFacts(name="flux", version="0.60"),))
    assert flux.objection(make_job(scheduling=Scheduling(**table)), site) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize(("code", "signals"), [(0, None), (6, "END\n")])
def test_only_a_part_that_fails_ends_the_others(code: int, signals: str | None, tmp_path: Path) -> None:
    """By default, Flux ends a job when its parts end more than some seconds apart."""
    (tmp_path / "job.sh").write_text(f"exit {code}\n")
    fake = tmp_path / "bin/flux"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/bash\n[[ " $* " == *" -o exit-timeout=none "* ]] || exit 99\n'
        'while [ "$1" != bash ]; do shift; done; "$@"\n'
    )
    fake.chmod(0o755)
    part = f"has() {{ false; }}\n{Flux().snippet()}\non_each_node {tmp_path}/job.sh --node RUN"
    done = subprocess.run(
        ["bash", "-c", f"set -u\n{part}"],
        env={
            "PATH": f"{fake.parent}:{os.environ['PATH']}", "BAREBOAT_NODES": "2",
            "BAREBOAT_CONTROL": str(tmp_path),
        },
        timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == code
    file = tmp_path / "signals"
    assert (file.read_text() if file.exists() else None) == signals
