"""Keys, flags and verbs that Bareboat had once."""

from pathlib import Path

import pytest

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
