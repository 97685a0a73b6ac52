"""Flux inside Flux: which instance commands address, and the nodes of `flux alloc`."""

import os
import subprocess
from pathlib import Path

import pytest

from bareboat import render
from bareboat.runs import allocation
from bareboat.schedulers.flux import Flux


def test_flux_alloc_is_an_allocation() -> None:
    asked = []

    def count(source: object) -> int:
        asked.append(source)
        return 2

    found = Flux().allocation({"FLUX_ENCLOSING_ID": "ƒ1Ab", "FLUX_URI": "local:///tmp/x"}, count)
    assert found is not None
    assert (found.job_id, found.nodes, found.here) == ("ƒ1Ab", 2, True)
    assert asked == [("flux", "hostlist", "--expand", "--delimiter=\n", "local")]


def test_a_step_inside_flux_alloc_is_no_allocation() -> None:
    assert Flux().allocation({"FLUX_ENCLOSING_ID": "ƒ1", "FLUX_JOB_ID": "ƒ2"}, lambda _: 2) is None
    assert Flux().allocation({"FLUX_URI": "local:///run/flux/local"}, lambda _: 2) is None


def test_hosts_that_a_command_prints_are_counted() -> None:
    assert allocation._count_hosts(("printf", "c1\\nc2\\nc2\\n")) == 2
    assert allocation._count_hosts(("false",)) == 1
    assert allocation._count_hosts("") == 1


@pytest.mark.parametrize(("state", "lost"), [("RUN", "c2\n"), ("CLEANUP", ""), ("", "")])
def test_nodes_that_leave_a_cancelled_job_are_not_lost(state: str, lost: str, tmp_path: Path) -> None:
    flux = f'flux() {{ case "$*" in *" jobs "*) echo "{state}" ;; hostlist*avail) echo c2 ;; esac; }}\n'
    subprocess.run(
        ["bash", "-c", f"{flux}{Flux().snippet()}\nfind_lost"], check=True, timeout=20,
        env={"PATH": os.environ["PATH"], "BAREBOAT_JOB": "ƒ1", "BAREBOAT_CONTROL": str(tmp_path)},
    )  # fmt: skip
    file = tmp_path / "lost"
    assert (file.read_text() if file.exists() else "") == lost


def test_values_that_only_the_job_reads_are_in_no_environment_that_flux_keeps(tmp_path: Path) -> None:
    """It keeps it as JSON, and rejects bytes that are not UTF-8."""
    program = tmp_path / "flux"
    program.write_text('#!/bin/bash\nenv -0 > "$1.env"\n')
    program.chmod(0o755)
    (tmp_path / "environment").write_bytes(b"TOKEN\0a\nb \xff\0OTHER\0\0")
    pieces = render.subject("common") + render.subject("environment")
    text = (
        f"{pieces}\nfeatures=' environment_from ' start=\n{Flux().snippet()}\nread_environment\n"
        "[ \"$TOKEN\" = $'a\\nb \\xff' ] || exit 9\n"
        'on_each_node "$script" --node RUN; again RUN; on_host c2 true; [ -n "$TOKEN" ]\n'
    )
    variables = {
        "BAREBOAT_CONTROL": str(tmp_path),
        "BAREBOAT_NODES": "2",
        "script": "job.sh",
        "SEEN": "here",
    }
    subprocess.run(
        ["bash", "-c", text], check=True, timeout=20, cwd=tmp_path,
        env={**variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    for command in ("run", "--parent", "exec"):
        kept = (tmp_path / f"{command}.env").read_bytes()
        assert b"SEEN=here\0" in kept
        assert b"TOKEN=" not in kept
        assert b"OTHER=" not in kept
