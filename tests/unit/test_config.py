"""Settings: flag over environment over project file over site file over default, and each says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bareboat import config
from bareboat_base.errors import UsageError

#: One value for each setting and each source; none is a default.
VALUES: dict[str, dict[str, Any]] = {
    "store": {"flag": "/flag", "environment": "/env", "project": "/project", "site": "/site"},
    "engine": {"flag": "native", "environment": "podman", "project": "udocker", "site": "apptainer"},
    "mirrors": {"flag": "a=b", "environment": "a=c", "project": "a=d", "site": "a=e"},
    "plain_http": {"flag": "a", "environment": "b", "project": "c", "site": "d"},
    "ca_file": {"flag": "/flag", "environment": "/env", "project": "/project", "site": "/site"},
    "launcher": {
        "flag": "launcher-a",
        "environment": "launcher-b",
        "project": "launcher-c",
        "site": "launcher-d",
    },
    "scheduler": {
        "flag": "scheduler-a",
        "environment": "scheduler-b",
        "project": "scheduler-c",
        "site": "scheduler-d",
    },
    "partition": {
        "flag": "partition-a",
        "environment": "partition-b",
        "project": "partition-c",
        "site": "partition-d",
    },
    "account": {"flag": "account-a", "environment": "account-b", "project": "account-c", "site": "account-d"},
    "qos": {"flag": "qos-a", "environment": "qos-b", "project": "qos-c", "site": "qos-d"},
    "reservation": {
        "flag": "reservation-a",
        "environment": "reservation-b",
        "project": "reservation-c",
        "site": "reservation-d",
    },
    "delivery": {"flag": "node", "environment": "shared", "project": "auto", "site": "node"},
    "node_scratch": {"flag": "/flag", "environment": "/env", "project": "/project", "site": "/site"},
    "constraint": {
        "flag": "constraint-a",
        "environment": "constraint-b",
        "project": "constraint-c",
        "site": "constraint-d",
    },
    "modules": {"flag": "modules-a", "environment": "modules-b", "project": "modules-c", "site": "modules-d"},
    "repeats": {"flag": 21, "environment": 22, "project": 23, "site": 24},
    "margin": {"flag": 0.11, "environment": 0.12, "project": 0.13, "site": 0.14},
    "confidence": {"flag": 0.81, "environment": 0.82, "project": 0.83, "site": 0.84},
    "seed": {"flag": 31, "environment": 32, "project": 33, "site": 34},
    "tool_timeout_s": {"flag": 41.5, "environment": 42.5, "project": 43.5, "site": 44.5},
}
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
    if "project" in given:
        (project / "bareboat.toml").write_text(f"# mine\n{name} = {toml(values['project'])}\n")
        config.agree(project / "bareboat.toml", {"HOME": str(home)})
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


def test_the_defaults_are_the_models(home: Path, project: Path) -> None:
    found = config.resolve({}, folder=project, environment={"HOME": str(home)})
    assert (found["engine"], found["repeats"], found["margin"], found["confidence"], found["seed"]) == (
        None, 10, 0.02, 0.95, None,
    )  # fmt: skip


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
    (project / "bareboat.toml").write_text('store = "images"\n')
    config.agree(project / "bareboat.toml", environment)
    assert config.resolve({}, folder=project / "a", environment=environment).store == project / "images"
    flags = {"store": "here"}
    assert config.resolve(flags, folder=project / "a", environment=environment).store == project / "a/here"


def test_a_tilde_in_the_store_is_the_home_folder(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    environment = {"HOME": str(home)}
    (project / "bareboat.toml").write_text('store = "~/images"\n')
    config.agree(project / "bareboat.toml", environment)
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


@pytest.mark.parametrize("name", config.KNOWN)
def test_an_empty_variable_is_refused(home: Path, project: Path, name: str) -> None:
    variable = f"BAREBOAT_{name.upper()}"
    for value, word in (("", "empty"), (" ", "blank")):
        with pytest.raises(UsageError, match=f"{variable} is {word}") as caught:
            config.resolve({}, folder=project, environment={"HOME": str(home), variable: value})
        assert caught.value.remedy.startswith(f"unset {variable}")


@pytest.mark.parametrize(
    ("name", "text"), [("repeats", "ten"), ("repeats", "1.5"), ("margin", "2 %"), ("confidence", "x"),
                       ("seed", "0x1")]
)  # fmt: skip
def test_a_variable_of_the_wrong_type_is_refused_by_name(project: Path, name: str, text: str) -> None:
    variable = f"BAREBOAT_{name.upper()}"
    with pytest.raises(UsageError) as caught:
        config.resolve({}, folder=project, environment={variable: text})
    assert variable in caught.value.message
    assert repr(text) in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    "statement",
    ["repeats = 'ten'", "repeats = 1.5", "margin = '2'", "seed = true", "store = 1", "engine = []"],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_line(project: Path, statement: str) -> None:
    name = statement.split()[0]
    (project / "bareboat.toml").write_text(f"# c\n\n{statement}\n")
    with pytest.raises(UsageError, match=f"{name} is .*; it must be ") as caught:
        config.resolve({}, folder=project, environment={})
    assert caught.value.context == f"{project}/bareboat.toml, line 3"


def test_a_fraction_stays_in_its_range(project: Path) -> None:
    (project / "bareboat.toml").write_text("margin = 0.5\n")
    assert config.resolve({}, folder=project, environment={})["margin"] == 0.5
    (project / "bareboat.toml").write_text("margin = 1\n")
    with pytest.raises(UsageError, match="margin is 1; it must be a number above 0 and below 1"):
        config.resolve({}, folder=project, environment={})


@pytest.mark.parametrize("where", ["project", "site"])
def test_an_unknown_key_is_refused_with_what_was_meant(home: Path, project: Path, where: str) -> None:
    path = {"project": project / "bareboat.toml", "site": home / ".config/bareboat/site.toml"}[where]
    path.write_text("seed = 1\nrepeat = 3\n")
    with pytest.raises(UsageError, match="unknown key 'repeat'; did you mean 'repeats'") as caught:
        config.resolve({}, folder=project, environment={"HOME": str(home)})
    assert caught.value.context == f"{path}, line 2"
    assert caught.value.remedy == "rename it to repeats"


def test_a_site_file_is_checked_even_where_a_flag_makes_it_idle(home: Path, project: Path) -> None:
    (home / ".config/bareboat/site.toml").write_text("seed = 'x'\n")
    with pytest.raises(UsageError, match="seed is 'x'; it must be "):
        config.resolve({"seed": 1}, folder=project, environment={"HOME": str(home)})


def test_a_settings_file_that_is_not_toml_is_refused(project: Path) -> None:
    (project / "bareboat.toml").write_text("seed\n")
    with pytest.raises(UsageError, match=r"bareboat.toml is not valid TOML"):
        config.resolve({}, folder=project, environment={})


# --------------------------------------------------------------------------------------------------
# over_job


def test_a_job_file_goes_over_the_files_and_under_flags_and_variables(project: Path) -> None:
    (project / "bareboat.toml").write_text("repeats = 2\nmargin = 0.5\nconfidence = 0.6\nseed = 7\n")
    found = config.resolve(
        {"confidence": 0.9}, folder=project, environment={"BAREBOAT_SEED": "8", "HOME": "/nobody"}
    )
    job = {"repeats": 3, "confidence": 0.7, "seed": 9, "window_s": 2.0}
    assert found.over_job(job) == {
        "repeats": 3, "margin": 0.5, "confidence": 0.9, "seed": 8, "window_s": 2.0,
    }  # fmt: skip
    assert job == {"repeats": 3, "confidence": 0.7, "seed": 9, "window_s": 2.0}
