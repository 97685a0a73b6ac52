"""Real Podman: what a probe makes of the state that Podman keeps in /tmp.

Podman keeps one pause process for each user, so these tests run alone.
"""

import os
import subprocess
from pathlib import Path

import pytest
from builders import make_image, make_site
from environments import Captured
from tools import tool
from watch import wait_until

from bareboat import registry
from bareboat.engines import Container
from bareboat.model import Command, IfSet
from bareboat.model.plan import Refusal
from bareboat.probe import probe
from bareboat.probe.host import RealHost
from bareboat.site_layer.local_run import job_here, run_here
from bareboat_base import execute

ENGINES = ("podman", "podman-hpc")


@pytest.fixture(autouse=True)
def podman() -> str:
    return tool("podman")


def processes(*names: str) -> set[str]:
    """This user's processes of Podman, or of these names, with the time when each was started."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(") ")[2].split()
            name = (folder / "comm").read_text().strip()
            if (
                folder.stat().st_uid == os.getuid()
                and state[0] != "Z"
                and name.startswith(names or ("podman", "conmon"))
            ):
                found.add(f"{name} {folder.name} {state[19]}")
        except OSError:
            continue
    return found


def folders() -> set[str]:
    return {path.name for path in Path("/tmp").iterdir() if str(os.getuid()) in path.name}


@pytest.fixture(autouse=True)
def _ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() == 0:
        pytest.skip("rootless Podman is for ordinary users")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    wait_until(lambda: not any(each.startswith("conmon") for each in processes()), limit_s=3)


def test_a_long_runtime_directory_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman would not see the end of its container."""
    folder = tmp_path / ("x" * 60)
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    (tmp_path / "scratch").mkdir()
    (facts,) = registry.engine("podman").probe(RealHost(tmp_path / "scratch"))
    assert facts.works, facts.detail
    assert list(folder.iterdir()) == []
    site = make_site(engines=(facts,))
    container = Container(flat="/tree", home="/home/ada")
    enclosure = registry.engine("podman").judge(site, make_image())
    assert not isinstance(enclosure, Refusal), enclosure.reason
    command = enclosure.wrap(Command(argv=("true",), workdir="/"), container)
    passed = {word.variable for word in command.argv if isinstance(word, IfSet)}
    assert "XDG_RUNTIME_DIR" not in passed
    assert "XDG_DATA_HOME" in passed


def test_directories_that_another_podman_removed_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Podman fails if they go while it starts: that is tried again."""
    podman = tmp_path / "bin" / "podman"
    podman.parent.mkdir()
    podman.write_text(f"""#!/bin/sh
case " $* " in *" run "*)
  for number in 1 2 3 4; do
    if mkdir "$0.$number" 2> /dev/null; then
      echo 'XDG_RUNTIME_DIR directory "/tmp/podman-run-1000" is not owned by the current user' >&2
      exit 125
    fi
  done
esac
exec {tool("podman")} "$@"
""")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{podman.parent}:{os.environ['PATH']}")
    (tmp_path / "scratch").mkdir()
    (facts,) = registry.engine("podman").probe(RealHost(tmp_path / "scratch"))
    assert facts.works, facts.detail
    assert (podman.parent / "podman.4").is_dir()


def test_a_pause_process_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (facts,) = registry.engine("podman").probe(RealHost(tmp_path / "first"))
    runtime = facts.settings.get("runtime")
    assert execute.run([tool("podman"), *([f"--runtime={runtime}"] if runtime else []), "unshare", "true"]).ok
    before = {each for each in processes() if each.startswith("podman pause")}
    try:
        assert before
        (tmp_path / "second").mkdir()
        registry.engine("podman").probe(RealHost(tmp_path / "second"))
        assert before <= processes()
    finally:
        for each in before:
            os.kill(int(each.rsplit(" ", 2)[1]), 9)


def test_the_number_of_the_pause_process_may_belong_to_another_process(
    captured: Captured, tmp_path: Path
) -> None:
    """Podman would join its namespace: in a container with other users it says that its own directory in
    /tmp belongs to somebody else."""
    other = subprocess.Popen(["unshare", "--user", "--mount", "sleep", "60"])
    assert wait_until(lambda: Path(f"/proc/{other.pid}/comm").read_text() == "sleep\n", limit_s=5)
    stale = Path(f"/tmp/podman-run-{os.getuid()}/libpod/tmp/pause.pid")

    def write() -> None:
        stale.parent.mkdir(parents=True, exist_ok=True)
        stale.write_text(str(other.pid))

    try:
        write()
        site = probe(captured.store)
        assert next(each for each in site.engines if each.name == "podman").works
        write()
        job = job_here(tmp_path, ("python", "-c", "print(6 * 7)"), {}, engine="podman")
        ended = run_here(captured.store, captured.image, site, job)
        assert (ended.exit_code, ended.said.strip()) == (0, "42"), ended.said
    finally:
        other.kill()
        other.wait()
