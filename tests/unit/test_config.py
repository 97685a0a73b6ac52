"""Settings: flag over environment over project file over site file over default, and each says which."""

from pathlib import Path
from typing import Any

import pytest

from bareboat import config
from bareboat_base.errors import UsageError

#: One value for each setting and each source; none is a default.
VALUES: dict[str, dict[str, Any]] = {
    name: {source: f"{name}-{source}" for source in ("flag", "environment", "project", "site")}
    for name in (
        "engine", "launcher", "scheduler", "partition", "account", "qos", "reservation", "constraint",
        "modules",
    )
} | {
    "store": {"flag": "/flag", "environment": "/env", "project": "/project", "site": "/site"},
    "mirrors": {"flag": "a=b", "environment": "a=c", "project": "a=d", "site": "a=e"},
    "plain_http": {"flag": "a", "environment": "b", "project": "c", "site": "d"},
    "ca_file": {"flag": "/flag", "environment": "/env", "project": "/project", "site": "/site"},
    "delivery": {"flag": "node", "environment": "shared", "project": "auto", "site": "node"},
    "node_scratch": {"flag": "/flag", "environment": "/env", "project": "/project", "site": "/site"},
    "repeats": {"flag": 21, "environment": 22, "project": 23, "site": 24},
    "margin": {"flag": 0.11, "environment": 0.12, "project": 0.13, "site": 0.14},
    "confidence": {"flag": 0.81, "environment": 0.82, "project": 0.83, "site": 0.84},
    "seed": {"flag": 31, "environment": 32, "project": 33, "site": 34},
    "tool_timeout_s": {"flag": 41.5, "environment": 42.5, "project": 43.5, "site": 44.5},
}  # fmt: skip
ORDER = ["flag", "environment", "project", "site"]


def toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/.config/bareboat").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_every_setting_is_tested() -> None:
    # These two have rules of their own, which tests/hostile/test_policy_files.py tests.
    assert {*VALUES, "policy", "require_digest"} == set(config.KNOWN)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("best", [*ORDER, "default"])
def test_each_source_wins_over_all_below_it_and_is_named(
    name: str, best: str, home: Path, project: Path
) -> None:
    given = ORDER[ORDER.index(best) :] if best in ORDER else []
    values = VALUES[name]
    if "site" in given:
        (home / ".config/bareboat/site.toml").write_text(f"\n\n{name} = {toml(values['site'])}\n")
    if name in config.PERSONAL and "project" in given:
        return  # no project's file may set it
    if "project" in given:
        (project / "bareboat.toml").write_text(f"# mine\n{name} = {toml(values['project'])}\n")
    environment = {"HOME": str(home)}
    if "environment" in given:
        environment[f"BAREBOAT_{name.upper()}"] = str(values["environment"])
    flags = {name: values["flag"]} if "flag" in given else {name: None}
    found = config.resolve(flags, folder=project, environment=environment)
    sources = {
        "flag": f"flag --{name.replace('_', '-')}",
        "environment": f"environment BAREBOAT_{name.upper()}",
        "project": f"project file {project}/bareboat.toml, line 2",
        "site": f"site file {home}/.config/bareboat/site.toml, line 3",
        "default": "default",
    }
    source = found.settings[name].source
    assert source == sources[best] or (
        name == "store" and best == "default" and source.startswith("default: ")
    )
    if best != "default":
        assert found[name] == values[best]
        assert type(found[name]) is type(values[best])
    for other in set(VALUES) - {name}:
        assert found.settings[other].source.partition(":")[0] == "default"


def test_the_default_store_follows_the_xdg_specification(disk: Path, project: Path) -> None:
    home = disk
    environment = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    assert config.resolve({}, folder=project, environment=environment).store == home / "data/bareboat"
    del environment["XDG_DATA_HOME"]
    found = config.resolve({}, folder=project, environment=environment)
    assert found.store == home / ".local/share/bareboat"
    assert found.settings["store"].source.startswith("default: the home directory has ")


def test_the_nearest_project_file_above_counts(home: Path, project: Path) -> None:
    (project / "a/b").mkdir(parents=True)
    (project / "bareboat.toml").write_text("seed = 5\n")
    environment = {"HOME": str(home)}
    assert config.resolve({}, folder=project / "a/b", environment=environment)["seed"] == 5
    (project / "a/bareboat.toml").write_text("repeats = 6\n")
    found = config.resolve({}, folder=project / "a/b", environment=environment)
    assert (found["seed"], found["repeats"]) == (None, 6)


def test_the_users_site_file_goes_over_the_machines_key_by_key(
    home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = tmp_path / "etc-site.toml"
    machine.write_text(
        'partition = "main"\nmirrors = "docker.io=mirror"\nrequire_digest = true\nseed = 3\nmargin = 0.1\n'
    )
    monkeypatch.setattr(config, "SITE_FILE", machine)
    (home / ".config/bareboat/site.toml").write_text('partition = "gpu"\nrequire_digest = false\nseed = 4\n')
    (project / "bareboat.toml").write_text("seed = 5\n")
    found = config.resolve({}, folder=project, environment={"HOME": str(home)})
    values = {name: found[name] for name in ("partition", "mirrors", "require_digest", "seed", "margin")}
    assert values == {
        "partition": "gpu", "mirrors": "docker.io=mirror", "require_digest": True, "seed": 5, "margin": 0.1,
    }  # fmt: skip
    assert found.settings["partition"].source.startswith(f"site file {home}")
    assert found.settings["require_digest"].source == f"site file {machine}, line 3"
    machine.chmod(0o666)
    with pytest.raises(UsageError, match=f"the settings in {machine} are not trusted"):
        config.resolve({}, folder=project, environment={"HOME": str(home)})


def test_the_users_folder_of_settings_can_be_elsewhere(home: Path, project: Path) -> None:
    (home / "xdg/bareboat").mkdir(parents=True)
    (home / "xdg/bareboat/site.toml").write_text("seed = 5\n")
    (home / ".config/bareboat/site.toml").write_text("seed = 6\n")
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "xdg")}
    assert config.resolve({}, folder=project, environment=environment)["seed"] == 5


def test_a_store_named_in_a_file_is_relative_to_that_file(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "a").mkdir()
    monkeypatch.chdir(project / "a")
    environment = {"HOME": str(home)}
    (home / ".config/bareboat/site.toml").write_text('store = "images"\n')
    found = config.resolve({}, folder=project / "a", environment=environment)
    assert found.store == home / ".config/bareboat/images"
    flags = {"store": "here"}
    assert config.resolve(flags, folder=project / "a", environment=environment).store == project / "a/here"


def test_a_tilde_in_the_store_is_the_home_folder(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    environment = {"HOME": str(home)}
    (home / ".config/bareboat/site.toml").write_text('store = "~/images"\n')
    assert config.resolve({}, folder=project, environment=environment).store == home / "images"
    environment = {"BAREBOAT_STORE": "~/other"}
    assert config.resolve({}, folder=project, environment=environment).store == home / "other"


def test_a_misspelt_variable_is_named(home: Path, project: Path, caplog: pytest.LogCaptureFixture) -> None:
    of_runs = (
        "RUN RUN_DIR CONTROL JOB NODE NODES HOST MASTER PORT INTERFACE TREES SECRET GATE METER_DIR IMAGE "
        "SWEEP_LR ENV_0 HELPER_OF CPUS_PER_TASK SCRIPT"
    )
    environment = {
        "HOME": str(home),
        **{f"BAREBOAT_{name}": "x" for name in of_runs.split()},
        "BAREBOATS": "x",
    }
    config.resolve({}, folder=project, environment=environment)
    assert caplog.messages == []
    for misspelt, name in (("STROE", "STORE"), ("ENGIN", "ENGINE"), ("NODESCRATCH", "NODE_SCRATCH")):
        caplog.clear()
        config.resolve({}, folder=project, environment={"HOME": str(home), f"BAREBOAT_{misspelt}": "x"})
        (message,) = caplog.messages
        assert message.endswith(f"BAREBOAT_{misspelt} has no effect; did you mean BAREBOAT_{name}?")


# of_job


def test_a_job_file_goes_over_the_files_and_under_flags_and_variables(project: Path) -> None:
    (project / "bareboat.toml").write_text("repeats = 2\nmargin = 0.5\nconfidence = 0.6\nseed = 7\n")
    found = config.resolve(
        {"confidence": 0.9}, folder=project, environment={"BAREBOAT_SEED": "8", "HOME": "/nobody"}
    )
    own = {"prove.repeats", "prove.confidence", "prove.seed", "prove.window_s"}
    given = {key: value for key, value, _ in found.of_job(own)}
    assert given == {"prove.margin": 0.5, "prove.confidence": 0.9, "prove.seed": 8}
