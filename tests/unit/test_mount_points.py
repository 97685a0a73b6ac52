"""Which places the planner asks for, and how the engines that need them name their mounts."""

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
