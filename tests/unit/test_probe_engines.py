"""An engine that hangs when it is tried."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import make_image, make_site

from bareboat import registry
from bareboat.model import Outcome, Refusal
from bareboat.probe.host import RealHost
from bareboat.probe.machine import probe_engine
from bareboat_base import execute
from bareboat_base.files import failures


class Impatient(RealHost):
    """This machine, with two programs that never end."""

    def which(self, name: str) -> str | None:
        return "/usr/bin/sleep" if name in ("podman", "proot") else None

    def run(self, argv: Sequence[str]) -> Outcome:  # noqa: ARG002
        return execute.run(["sleep", "60"], timeout_s=0.1)


class Full(Impatient):
    """This machine, whose store is on a full disk."""

    def run(self, argv: Sequence[str]) -> Outcome:
        return Outcome(argv=tuple(argv), exit_code=0, stdout="podman 5.0.0", stderr="", wall_s=0.0)

    def scratch(self) -> str:
        raise OSError(errno.ENOSPC, "No space left on device", "/store/tmp/probe-1")


def test_a_full_disk_is_no_fault_of_an_engine(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as raised:
        probe_engine("podman", Full(tmp_path))
    found = failures.explain(raised.value)
    assert found is not None
    assert "/store/tmp/probe-1" in found.message


@pytest.mark.parametrize(("name", "chosen"), [("podman", "podman"), ("udocker", "udocker:P1")])
def test_it_does_not_work_and_says_why(
    name: str, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDOCKER_DIR", str(tmp_path))
    found = probe_engine(name, Impatient(tmp_path))
    assert [facts.works for facts in found] == [False]
    verdict = registry.engine(chosen).judge(make_site(engines=found), make_image())
    assert isinstance(verdict, Refusal)
    assert verdict.reason.endswith("allow more time: export BAREBOAT_TOOL_TIMEOUT_S=60")
