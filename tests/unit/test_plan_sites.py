"""`plan --for`: one job at several sites, from the facts that their doctors wrote."""

import json
import platform
from pathlib import Path

import msgspec
import pytest
from builders import make_site

from bareboat.cli.main import main
from bareboat.model import Partition, SchedulerFacts, Site
from bareboat_base import codec

HERE = platform.machine()
SLURM = SchedulerFacts(
    name="slurm", version="22.05", partitions=(Partition(name="gpu", default=True, max_time_s=3600, nodes=4),)
)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text('command = ["python3", "-c", "print(1)"]\n')


def export(name: str, login: Site, **others: Site) -> str:
    path = Path(f"{name}.json")
    path.write_bytes(codec.to_json({"login": login, **others}))
    return str(path)


def outlooks(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> list[dict[str, object]]:
    assert main(["plan", *words, "--json"]) == code
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_a_site_runs_the_job_or_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    here = make_site(architecture=HERE)
    other = "aarch64" if HERE == "x86_64" else "x86_64"
    sites = [
        export("here", here),
        export("arm", make_site(architecture=other)),
        export("bare", msgspec.structs.replace(here, engines=())),
    ]
    found = outlooks(capsys, "job.toml", *(f"--for={each}" for each in sites), code=3)
    assert [(each["site"], each["runs"]) for each in found] == [
        ("here", True),
        ("arm", False),
        ("bare", False),
    ]
    assert "is built for" in str(found[1]["reason"])
    assert all(each["remedy"] for each in found[1:])
    assert main(["plan", "job.toml", *(f"--for={each}" for each in sites)]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "site"


def test_the_scheduler_and_its_limits_are_those_of_the_site(capsys: pytest.CaptureFixture[str]) -> None:
    queue = export("queue", make_site(architecture=HERE, schedulers=(SLURM,)))
    alone = export("alone", make_site(architecture=HERE))
    [found, local] = outlooks(capsys, "job.toml", "--for", queue, "--for", alone, code=0)
    plans = [each["plan"] for each in (found, local)]
    assert [plan["scheduler"] for plan in plans if isinstance(plan, dict)] == ["slurm", "local"]
    [found, local] = outlooks(capsys, "job.toml", "--time", "2h", "--for", queue, "--for", alone, code=3)
    assert (found["runs"], local["runs"]) == (False, True)
    assert "gpu allows 01:00:00" in str(found["reason"])


def test_settings_of_this_site_are_not_taken_to_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "config" / "bareboat" / "site.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('partition = "only-here"\naccount = "mine"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    queue = export("queue", make_site(architecture=HERE, schedulers=(SLURM,)))
    [found] = outlooks(capsys, "job.toml", "--for", queue, code=0)
    assert "only-here" not in json.dumps(found)
    [found] = outlooks(capsys, "job.toml", "--partition", "none", "--for", queue, code=3)
    assert "none" in str(found["reason"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[1]", "not valid JSON"),
        ("{}", "its content is missing"),
        (None, "no facts about the site"),
    ],
)
def test_a_file_without_facts_is_refused(
    capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    if content is not None:
        Path("site.json").write_text(content)
    assert main(["plan", "job.toml", "--for", "site.json"]) == 2
    err = capsys.readouterr().err
    assert said in err


def test_scripts_are_of_this_site(capsys: pytest.CaptureFixture[str]) -> None:
    site = export("site", make_site(architecture=HERE))
    for flag in ("--script", "--prepare"):
        assert main(["plan", "job.toml", flag, "--for", site]) == 2
        assert f"{flag} and --for cannot be used together" in capsys.readouterr().err
