"""An engine, a launcher and a scheduler of another package, which says by entry points that they are there:
each is one file, and nothing in Bareboat knows them by name."""

import json
import os
from pathlib import Path

import pytest
from environments import Captured
from processes import command
from tools import completed

PLUGIN = Path(__file__).parents[1] / "plugin"
SCRIPT = """\
import os, ware
print(ware.NAME, *(os.environ[name] for name in ("ACME", "ACME_RANK", "RANK", "WORLD_SIZE")))
raise SystemExit(7 if os.environ["RANK"] == "1" and os.path.exists("fail") else 0)
"""


def bareboat(
    captured: Captured,
    folder: Path,
    *words: str,
    installed: bool = True,
    also: Path | None = None,
    **variables: str,
) -> tuple[int, str, str]:
    path = [str(each) for each in (PLUGIN if installed else None, also) if each is not None]
    done = completed(
        command(*words, "--store", str(captured.store.root)), cwd=folder, timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def write_plugin(folder: Path, kind: str, code: str) -> Path:
    """A package with a backend of this kind, of the name `odd`."""
    (folder / "odd-1.0.dist-info").mkdir(parents=True)
    (folder / "odd-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (folder / "odd-1.0.dist-info" / "entry_points.txt").write_text(f"[bareboat.{kind}s]\nodd = odd:Odd\n")
    (folder / "odd.py").write_text(code)
    return folder


def write_job(captured: Captured, folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT)
    (folder / "job.toml").write_text(
        f'name = "plugged"\ncommand = ["{captured.python}", "script.py"]\nengine = "acme-box"\n'
        f'launcher = "acme-fork"\n[topology]\nranks_per_node = 2\n[capture]\npython = "{captured.python}"\n'
    )


def test_without_the_package_they_are_not_there(captured: Captured, tmp_path: Path) -> None:
    write_job(captured, tmp_path)
    code, _, err = bareboat(captured, tmp_path, "plan", "job.toml", installed=False)
    assert code != 0
    assert "unknown engine 'acme-box'" in err


def test_a_job_is_planned_and_run_with_all_three(captured: Captured, tmp_path: Path) -> None:
    write_job(captured, tmp_path)
    code, out, err = bareboat(captured, tmp_path, "plan", "job.toml", "--scheduler", "acme-queue", "--json")
    assert code == 0, err
    plan = json.loads(out)
    assert (plan["engine"], plan["launcher"], plan["scheduler"]) == ("acme-box", "acme-fork", "acme-queue")
    code, out, err = bareboat(captured, tmp_path, "submit", "job.toml", "--scheduler", "acme-queue")
    assert code == 0, err
    run = out.strip()
    log = captured.store.root / "runs" / run / "output.log"
    code, _, err = bareboat(captured, tmp_path, "wait", run)
    assert code == 0, err + log.read_text()
    said = sorted(line for line in log.read_text().splitlines() if "acme-queue" in line)
    assert [line.partition("ware ")[2] for line in said] == ["acme-queue 0 0 2", "acme-queue 1 1 2"]
    (status,) = json.loads(bareboat(captured, tmp_path, "status", run, "--json")[1])
    assert (status["scheduler"], status["state"]) == ("acme-queue", "completed")


def test_run_uses_the_job_that_the_shell_is_in(captured: Captured, tmp_path: Path) -> None:
    write_job(captured, tmp_path)
    code, out, err = bareboat(captured, tmp_path, "run", "job.toml", ACME_JOB="23")
    assert code == 0, err
    assert "on 1 of the 1 nodes of acme-queue job 23" in err
    assert "ware acme-queue 1 1 2" in out


def test_the_first_failure_is_the_job_s(captured: Captured, tmp_path: Path) -> None:
    write_job(captured, tmp_path)
    (tmp_path / "fail").touch()
    code, out, err = bareboat(captured, tmp_path, "run", "job.toml")
    assert code == 7, out + err
    assert "ware local 1 1 2" in out


@pytest.mark.parametrize(
    ("kind", "of", "wrong", "right"),
    [
        ("engine", "box:Box", "STACK = True", "STACK is unknown; did you mean STACKS?"),
        ("launcher", "fork:Fork", "KEEP_OUTPUT = True", "KEEP_OUTPUT is unknown; did you mean KEEPS_OUTPUT?"),
        ("scheduler", "queue:Queue", "SUBMIT_STDIN = True",
         "SUBMIT_STDIN is unknown; did you mean SUBMITS_STDIN?"),
    ],
)  # fmt: skip
def test_a_misspelt_attribute_is_refused(
    captured: Captured, tmp_path: Path, kind: str, of: str, wrong: str, right: str
) -> None:
    module, _, base = of.partition(":")
    code = f"from acme.{module} import {base}\nclass Odd({base}):\n    NAME = 'odd'\n    {wrong}\n"
    plugin = write_plugin(tmp_path / "plugin", kind, code)
    write_job(captured, tmp_path)
    status, _, err = bareboat(captured, tmp_path, "plan", "job.toml", f"--{kind}", "odd", also=plugin)
    assert status not in (0, 70), err
    assert f"the {kind} 'odd' of an installed package cannot be used: {right}" in err
    assert "correct odd:Odd, or uninstall its package" in err
