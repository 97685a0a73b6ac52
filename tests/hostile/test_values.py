"""Values of a job file and of flags that were once accepted in silence: each is refused, with its line."""

import json
from pathlib import Path

import pytest
from builders import make_study
from matrices import keep, of_pair

from bareboat.cli.main import main
from bareboat_images.store import Store
from bareboat_study import point_plans


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> list[str]:
    assert main([*words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[-1].startswith("  try: ")
    return lines


#: What stands below `command = ["true"]` -> the message, and the line.
FILES = {
    "[prove]\ngoals = { accuracy = nan }": ("prove.goals.accuracy is nan", 3),
    "[prove]\nmargin = inf": ("prove.margin is inf", 3),
    "[prove]\nwindow_s = 1e999": ("prove.window_s is inf", 3),
    "[sweep]\nlr = [0.1, nan]": ("sweep.lr is nan", 3),
    "[scheduling]\nmem_per_node_bytes = 0": ("scheduling.mem_per_node_bytes is 0", 3),
    "[scheduling]\nmem_per_node_bytes = -1": ("scheduling.mem_per_node_bytes is -1", 3),
    "[scheduling]\nwarning_s = 120": ("scheduling.warning_s is 120: it must be less than walltime_s", 3),
    "walltime_s = 60\n[scheduling]\nwarning_s = 60": ("warning_s is 60: it must be less than walltime_s", 4),
    "walltime_s = 1_000_000_000_000": ("walltime_s is 1000000000000; it must be", 2),
    "[topology]\nranks_per_node = 1_000_000_000_000": ("topology.ranks_per_node is 1000000000000", 3),
    "[topology]\nnodes = 1_000_000\nranks_per_node = 10_000": ("10,000,000,000 ranks; at most", 4),
    "[prove]\nrepeats = 1_000_000_000_000": ("prove.repeats is 1000000000000", 3),
    "walltime_s = 0x" + "f" * 5000: ("walltime_s is a number of 6,021 digits", 2),
    "[sweep]\n" + "\n".join(f"x{n} = [0,1,2,3,4,5,6,7,8,9]" for n in range(9)): (
        "the sweep has 1,000,000,000 points; at most 100,000 are supported", 2,
    ),
    'mounts = ["/usr:/data", "/etc:/data/"]': ("two mounts have the same target /data", 2),
    'name = "a\\u0007b"': ("name is 'a\\x07b', with a control character", 2),
    'name = ""': ("name is empty", 2),
    'engine = ""': ("engine is empty", 2),
    'image = ""': ("image is empty", 2),
    '[scheduling]\npartition = "a\\nb"': ("scheduling.partition is 'a\\nb', with a control character", 3),
    '[scheduling]\noptions = ["--a\\n#SBATCH --b"]': ("scheduling.options is '--a\\n#SBATCH --b'", 3),
    'form = "disk"': ('form is \'disk\'; it must be "tree" or "file"', 2),
    'engine = "apptaner"': ("unknown engine 'apptaner'; did you mean 'apptainer'?", 2),
}  # fmt: skip


@pytest.mark.parametrize("text", FILES, ids=lambda text: text.splitlines()[-1][:40])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_job_file(capsys: pytest.CaptureFixture[str], text: str, more: list[str]) -> None:
    Path("job.toml").write_text(f'command = ["true"]\n{text}\n')
    message, line = FILES[text]
    lines = refused(capsys, "plan", *more, "job.toml", code=3 if message.startswith("unknown engine") else 2)
    assert message in lines[0]
    assert lines[1] == f"  job.toml, line {line}"
    assert len(lines[0]) < 300


SETTINGS = {
    "margin = nan": "margin is nan",
    "repeats = 1": "repeats is 1; it must be a whole number from 2",
    'store = ""': "store is empty",
    'store = "s3://bucket/x"': "store is 's3://bucket/x'",
    'engine = " "': "engine is blank",
    'delivery = "both"': 'delivery is \'both\'; it must be "auto", "shared" or "node"',
    "repeats = [": "is not valid TOML: ",
    "repeats = ten": "is not valid TOML: ",
    "repeats 10": "is not valid TOML: ",
}


@pytest.mark.parametrize("text", SETTINGS)
def test_settings(capsys: pytest.CaptureFixture[str], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BAREBOAT_STORE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path.cwd()))
    Path("bareboat").mkdir()
    Path("bareboat/site.toml").write_text(f"# mine\n{text}\n")
    lines = refused(capsys, "config")
    assert SETTINGS[text] in lines[0]
    assert "site.toml, line " in lines[1]
    assert "tomllib" not in " ".join(lines)


def test_flags_beside_resume(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study is fixed: what would change it is refused, what says the same is not."""
    monkeypatch.setattr(point_plans, "provide", lambda *_: None)  # its images are not in the store
    store = Store(home / "store")
    study = make_study(id=store.new_run("digits"))
    matrix, studies, records = of_pair(study, ())
    keep(store, matrix, records, studies)
    seed = study.order_seed
    resume = ["prove", "--resume", study.id, "--dry-run", "--json"]
    assert main([*resume, "--seed", str(seed)]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["study"] == study.id
    for flags in (["--seed", str(seed + 1)], ["--repeats", "77"], ["--engine", "podman"],
                  ["--image", "other"], ["--writable"], ["--policy", "x"], ["--require-digest"],
                  ["--python", "other"],
                  ["--qos", "high"], ["--delivery", "node"],
                  ["--env-from", "SECRET"], ["--", "other"]):  # fmt: skip
        lines = refused(capsys, *resume, *flags)
        assert f"cannot change the study {study.id}" in lines[0]
        assert f"remove {flags[0]}" in lines[-1]
