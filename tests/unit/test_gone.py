"""Keys, flags and verbs that Bareboat had once."""

from pathlib import Path

import pytest
from processes import bareboat

from bareboat import config, gone
from bareboat.jobfile import read_job
from bareboat_base.errors import UsageError


def test_what_took_the_place_of_a_key_is_said(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('command = ["true"]\n[capture]\ncuda = false\n')
    settings = config.resolve({}, folder=None, environment={}, with_site=False)
    with pytest.raises(UsageError) as caught:
        read_job(tmp_path / "job.toml", settings)
    assert caught.value.remedy == gone._INSTEAD["capture.cuda"]
    assert "job.toml, line 3" in caught.value.context


def test_what_took_the_place_of_a_flag_is_said(tmp_path: Path) -> None:
    code, _, err = bareboat("image", "capture", "--without-study", store=tmp_path / "store", cwd=tmp_path)
    assert code == 2
    assert gone._INSTEAD["--without-study"] in " ".join(err.split())


def test_what_took_the_place_of_a_verb_is_said(tmp_path: Path) -> None:
    code, _, err = bareboat("config", "site", "--partition", "x", store=tmp_path / "store", cwd=tmp_path)
    assert code == 2
    assert gone._INSTEAD["bareboat config site"].split(";")[0] in " ".join(err.split())
