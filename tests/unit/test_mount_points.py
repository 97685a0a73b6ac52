"""Which places the planner asks for, and how the engines that need them name their mounts."""

from __future__ import annotations

import subprocess

import pytest

from bareboat.engines import Container, charliecloud, podman
from bareboat.model import Mount
from bareboat.plan.container import mount_points
from bareboat_base.errors import PlanError


def container(*mounts: Mount, identity: str | None = None) -> Container:
    return Container(
        flat="/flat", scratch=("/tmp", "/var/tmp", "/run", "/home/u"), mounts=mounts, identity=identity,
        home="/home/u",
    )  # fmt: skip


def test_places_are_asked_for_what_lies_in_no_mount_and_no_scratch() -> None:
    mounts = (
        Mount(source="/a", target="/data"),
        Mount(source="/b", target="/data/inner"),
        Mount(source="/w", target="/home/u/project"),
        Mount(source="/f", target="/etc/alone"),
    )
    asked = mount_points(container(*mounts, identity="/id"), all_places=True)
    assert [mount.target for mount in asked] == [
        "/data", "/dev", "/etc/alone", "/etc/group", "/etc/hosts", "/etc/passwd", "/etc/resolv.conf",
        "/home/u", "/proc", "/run", "/sys", "/tmp", "/var/tmp",
    ]  # fmt: skip


def test_a_mount_in_a_folder_that_is_mounted_out_of_the_image_has_its_place_there() -> None:
    mounts = (
        Mount(source="/flat/home/u/env", target="/home/u/env"),
        Mount(source="/d", target="/home/u/env/share/data"),
        Mount(source="/flat/opt/x", target="/home/u/link"),
        Mount(source="/d", target="/home/u/link/data"),
        Mount(source="/e", target="/home/u/link/data/deeper"),
        Mount(source="/elsewhere", target="/data"),
    )
    found = mount_points(container(*mounts), all_places=False)
    assert found == (
        Mount(source="/d", target="/home/u/env/share/data"),
        Mount(source="/d", target="/opt/x/data"),
    )


def test_only_what_the_image_does_not_have_is_mounted_read_only_outside() -> None:
    """What the image has is read-only as it is, but for its /tmp, which ch-run hides."""
    mounts = charliecloud._Mounts(
        container(
            Mount(source="/data", target="/data"),
            Mount(source="/rw", target="/rw", writable=True),
            Mount(source="/flat/home/u/venv", target="/home/u/venv"),
            Mount(source="/flat/tmp/venv", target="/tmp/venv"),
            identity="/id",
        )
    )
    assert mounts.read_only == ("/id/etc/passwd", "/id/etc/group", "/data", "/flat/tmp/venv")


def test_ch_run_gets_its_tmp_last() -> None:
    words = charliecloud._Mounts(container(Mount(source="/w", target="/tmp/w", writable=True))).words()
    assert words[-1] == "--bind=/flat/tmp/tmp:/tmp"
    assert "--bind=/w:/tmp/tmp/w" in words
    assert charliecloud._Mounts(container()).words()[-1] == "--bind=/flat/tmp/view/tmp:/tmp"


@pytest.mark.parametrize(
    "mount", [Mount(source="/a:b", target="/c", writable=True), Mount(source="/a", target="/run")]
)
def test_what_ch_run_cannot_mount_is_an_error(mount: Mount) -> None:
    with pytest.raises(PlanError):
        charliecloud._Mounts(container(mount)).words()


def test_podman_takes_any_name_in_utf_8() -> None:
    said = podman._mount(Mount(source='/a,"b"=c', target="/ü:d"))
    assert said == '--mount=type=bind,"source=/a,""b""=c","destination=/ü:d",ro=true'
    with pytest.raises(PlanError, match="UTF-8"):
        podman._mount(Mount(source="/\udcff", target="/x"))


def test_folders_on_the_way_to_a_mount_in_scratch_are_the_user_s_in_podman() -> None:
    assert podman._scratch(container(), ("/home/u/a/b/w", "/tmp", "/home/u/a/b/w/in/ner")) == [
        "/home/u", "/home/u/a", "/home/u/a/b", "/run", "/var/tmp",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [("\udcff\n", "", "'$x'", "ü\n"), ("\udc80.\n\n", "%s\\n")])
def test_words_that_json_cannot_hold_go_through_a_shell(words: tuple[str, ...]) -> None:
    argv = [str(word) for word in podman._printed(("printf", "%s|", *words))]
    assert all(map(podman._is_text, argv))
    done = subprocess.run(argv, capture_output=True, check=True)
    assert done.stdout == b"".join(word.encode(errors="surrogateescape") + b"|" for word in words)


def test_a_program_with_an_equals_sign_is_no_variable() -> None:
    assert podman._printed(("a=b", "c")) == ["/bin/sh", "-c", 'exec "$0" "$@"', "a=b", "c"]
