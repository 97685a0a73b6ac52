"""The script by which `attach` opens a shell in a job's container."""

from pathlib import Path

import msgspec
import pytest
from builders import make_job, make_site
from msgspec import UNSET

from bareboat import registry, render
from bareboat.model import SchedulerFacts
from bareboat.plan import plan
from bareboat.runs import interaction
from bareboat_base.errors import BareboatError
from bareboat_images.store import Store

slurm, gridengine = map(registry.scheduler, ("slurm", "gridengine"))


def test_the_shell_is_no_part_of_what_is_done(tmp_path: Path) -> None:
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    job = make_job(
        scheduler="slurm", engine="native", workdir=str(tmp_path), environment={"API_KEY": "k3y"},
        environment_from=("TOKEN",),
    )  # fmt: skip
    made = plan(job, None, None, site)
    without = msgspec.structs.replace(made, shell=UNSET)
    assert render.digest(made) == render.digest(without)
    place = render.Place("r", str(tmp_path))
    assert render.script(made, place) == render.script(without, place)
    assert b"k3y" not in msgspec.json.encode(render.shown(made))
    text = render.shell_script(made)
    assert text is not None
    assert "environment_from=(TOKEN)" in text
    assert 'unset "${environment_from[@]}"' in text, "not the value of the shell in which attach is called"
    assert render.shell_script(without) is None


def test_schedulers_without_a_way_name_none() -> None:
    words = ("bash", "/s/shell.sh", "r", "/s/control")
    assert slurm.attach("17", words) == (
        "srun", "--jobid=17", "--overlap", "--mem=0", "--nodes=1", "-n1", "--pty", *words,
    )  # fmt: skip
    assert slurm.attach("17_3", words)[3:] == ("17_3", *words)  # type: ignore[index]
    assert gridengine.attach("17", words) is None


def test_a_run_whose_script_is_missing(store: Store) -> None:
    run = store.new_run("train")
    with pytest.raises(BareboatError, match=r"shell\.sh is missing") as raised:
        interaction._shell_words(store, run)
    assert raised.value.remedy == f"bareboat attach --host {run}"
