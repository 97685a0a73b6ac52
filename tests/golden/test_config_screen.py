"""The list of settings on a terminal of 80 columns."""

from pathlib import Path

import pytest

from bareboat.cli.main import main


def test_no_line_of_the_settings_is_wider_than_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BAREBOAT_STORE", "/work/store")
    monkeypatch.setenv("BAREBOAT_MIRRORS", "docker.io=mirror.example.org")
    assert main(["config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "store          /work/store" in lines
    assert all(len(line) <= 80 for line in lines), max(lines, key=len)
    assert any("from: default" in line for line in lines)
