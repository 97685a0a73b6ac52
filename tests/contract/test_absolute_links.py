"""Images whose absolute links are on the way to what every container mounts, as Nix makes them."""

import getpass
from pathlib import Path

import pytest
from images import busybox
from processes import bareboat

LINKS: dict[str, bytes | str | None] = {
    "etc": "/nix/store/etc", "home": "/var/home", "tmp": "/var/tmp",
    "nix": None, "nix/store": None, "nix/store/etc": None, "var": None, "var/home": None, "var/tmp": None,
    "nix/store/etc/passwd": "/nix/store/passwd", "nix/store/passwd": b"root:x:0:0::/root:/bin/sh\n",
    "nix/store/etc/resolv.conf": "/run/nowhere",
}  # fmt: skip


@pytest.mark.parametrize("engine", ["bubblewrap", "udocker:P1"])
def test_the_image_runs(tmp_path: Path, engine: str) -> None:
    (tmp_path / "image.tar").write_bytes(busybox(**LINKS))
    script = "whoami; echo written > /tmp/x; cat /tmp/x /etc/hosts; cd; touch y; ls -l /etc"
    code, out, said = bareboat(
        "run", "-q", "--engine", engine, "--image", f"rootfs:{tmp_path}/image.tar", "--", "sh", "-c", script,
        store=tmp_path / "store", cwd=tmp_path,
    )  # fmt: skip
    if "cannot run here" in said:
        pytest.skip(said)
    assert code == 0, said
    assert out.startswith(f"{getpass.getuser()}\nwritten\n"), out
    assert "localhost" in out
    assert "/etc -> nix/store/etc" in out


def test_a_link_that_leads_nowhere_gives_way_in_stacked_layers(tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_bytes(busybox(**{"etc/resolv.conf": "../run/systemd/resolve/stub.conf"}))
    code, out, said = bareboat(
        "run", "-q", "--writable", "--engine", "bubblewrap", "--image", f"rootfs:{tmp_path}/image.tar", "--",
        "sh", "-c", "touch /new && cat /etc/resolv.conf",
        store=tmp_path / "store", cwd=tmp_path,
    )  # fmt: skip
    assert (code, out) == (0, Path("/etc/resolv.conf").read_text()), said
