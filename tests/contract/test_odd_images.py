"""Images that other tools were reported not to run, made from the reports: docs/odd-images.md lists them."""

import dataclasses
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import archives
import images
import pytest
import zstandard
from building import Builds
from images import Packed
from registries import sha256
from tars import archive, file, folder, hardlink, pax, symlink
from tools import tool

PAGE = Path(__file__).parents[2] / "docs" / "odd-images.md"


@dataclasses.dataclass(frozen=True)
class Odd:
    """Layers above one with a shell, and a shell command with what it prints."""

    layers: tuple[bytes, ...]
    check: str
    answer: str = "yes"


#: By the first of their reports.
TREES = {
    "apptainer/singularity/issues/977": Odd(
        (
            archive(folder(b"w/"), file(b"w/gone"), file(b"w/kept"), folder(b"w/old/"), file(b"w/old/f")),
            archive(folder(b"w/"), file(b"w/.wh.gone"), folder(b"w/old/"), file(b"w/old/.wh..wh..opq")),
        ),
        "cd /w; echo * old/*",
        "kept old old/*",
    ),
    "NERSC/shifter/issues/50": Odd(
        (
            archive(folder(b"s/"), file(b"s/target/new"), folder(b"s/d/"), file(b"s/d/old")),
            archive(folder(b"s/"), symlink(b"s/d", b"target")),
        ),
        "cd /s/d; echo *",
        "new",
    ),
    "hpc/charliecloud/issues/1280": Odd(
        (archive(folder(b"/"), folder(b"k/"), file(b"k/a", b"yes\n"), hardlink(b"k/b", b"/k/a")),),
        "cat /k/b",
    ),
    "hpc/charliecloud/issues/1569": Odd(
        (
            archive(
                folder(b"g/"), folder(b"g/b/"), folder(b"g/c/"), file(b"g/b/.gitignore", b"yes\n"),
                hardlink(b"g/c/.gitignore", b"g/b/.gitignore"),
            ),
        ),
        "cat /g/c/.gitignore",
    ),
    "apple/container/issues/1797": Odd(
        (archive(folder(b"p/"), file(b"p/a", b"yes\n"), hardlink(b"p/no/entry/b", b"p/a")),),
        "cat /p/no/entry/b",
    ),
    "indigo-dc/udocker/pull/137": Odd(
        (archive(folder(b"n/", mode=0o555), folder(b"n/store/", mode=0o555), file(b"n/store/f", b"yes\n")),),
        "cat /n/store/f",
    ),
    "indigo-dc/udocker/issues/265": Odd(
        (
            archive(folder(b"u/"), file(b"u/target", b"yes\n"), symlink(b"u/pager", b"/u/target")),
            archive(folder(b"u/"), file(b"u/.wh.pager")),
        ),
        "cd /u; echo *",
        "target",
    ),
    "indigo-dc/udocker/issues/118": Odd(
        (
            archive(
                folder(b"x/"), file(b"x/real", b"#!/bin/sh\necho yes\n", mode=0o755),
                folder(b"x/bin/"), symlink(b"x/bin/hello", b"/x/real"),
            ),
        ),
        "/x/bin/hello",
    ),
    "smol-machines/smolvm/issues/397": Odd(
        (
            archive(folder(b"h/"), file(b"h/a"), file(b"h/b"), file(b"h/c")),
            archive(folder(b"h/"), file(b"h/.wh.a"), hardlink(b"h/.wh.b", b"h/.wh.a")),
        ),
        "cd /h; echo *",
        "c",
    ),
    "hpc/charliecloud/pull/1782": Odd(
        (
            archive(
                folder(b"l/"), pax((b"SCHILY.xattr.user.note", b"x")),
                symlink(b"l/mtab", b"../nowhere/mounts"), file(b"l/f", b"yes\n"),
            ),
        ),
        "cat /l/f",
    ),
    "wwood/singlem/issues/155": Odd(
        (archive(folder(b"r/", mode=0o700), file(b"r/model", b"yes\n", mode=0o600)),),
        "cat /r/model",
    ),
    "hpc/charliecloud/issues/1015": Odd(
        (archive(folder(b"etc/"), symlink(b"etc/resolv.conf", b"../run/systemd/resolve/stub-resolv.conf")),),
        "cat /etc/resolv.conf >/dev/null && echo yes",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of each tree, all of them in one image, what its command printed."""
    builds = Builds(tmp_path_factory.mktemp("odd"))
    layers = [layer for each in TREES.values() for layer in each.layers]
    checks = "\n".join(f"echo {report}; ({each.check}) 2>&1; echo =" for report, each in TREES.items())
    name = layout(builds.folder, images.pack(images.busybox(), *layers))
    out = builds.bareboat("run", "--engine", "bubblewrap", "--image", name, "--", "sh", "-c", checks).out
    answers = [part.split("\n", 1) for part in out.split("\n=\n") if part]
    return dict(answers)


def layout(top: Path, image: Packed) -> str:
    """The reference of an image that is put into a directory."""
    files = archives.oci_files([image], [archives.entry(image)])
    return f"oci:{archives.put(top / image.digest[-8:], files)}"


@pytest.mark.parametrize("report", TREES)
def test_a_tree_that_other_tools_do_not_make(odd: dict[str, str], report: str) -> None:
    assert odd[report] == TREES[report].answer


def _read_only_root(top: Path) -> str:
    return layout(top, images.pack(images.busybox(), archive(folder(b"./", mode=0o555))))


def _no_shell(top: Path) -> str:
    program = archive(folder(b"proc/"), file(b"busybox", Path(tool("busybox")).read_bytes(), mode=0o755))
    return layout(top, images.pack(program, Entrypoint=["/busybox", "echo"], Cmd=["yes"]))


def _dockers_zstd(top: Path) -> str:
    """A type that Docker's specification does not have, though BuildKit writes it."""
    plain = images.pack(images.busybox())
    layer = zstandard.compress(images.busybox())
    manifest = json.loads(plain.manifest)
    manifest["mediaType"] = "application/vnd.docker.distribution.manifest.v2+json"
    manifest["config"]["mediaType"] = "application/vnd.docker.container.image.v1+json"
    media_type = "application/vnd.docker.image.rootfs.diff.tar.zstd"
    manifest["layers"] = [{"mediaType": media_type, "digest": sha256(layer), "size": len(layer)}]
    return layout(top, dataclasses.replace(plain, manifest=json.dumps(manifest).encode(), layers=(layer,)))


def _a_layer_twice(top: Path) -> str:
    """As `docker save` writes it: the second is a link to the first."""
    layers = images.busybox(), archive(folder(b"twice/"), file(b"twice/f", b"yes\n")), images.busybox()
    config = images.pack(*layers).config
    names = [f"{number}/layer.tar" for number in range(3)]
    saved = [{"Config": "config.json", "RepoTags": ["odd:1"], "Layers": names}]
    path = top / "twice.tar"
    with tarfile.open(path, "w") as tar:
        contents = {"config.json": config, "manifest.json": json.dumps(saved).encode()}
        for name, data in (contents | dict(zip(names[:2], layers, strict=False))).items():
            tar.addfile(archives.member(name, size=len(data)), io.BytesIO(data))
        tar.addfile(archives.member(names[2], kind=tarfile.SYMTYPE, target="../0/layer.tar"))
    return f"docker-archive:{path}"


#: Whole images, and the command to run in each: none runs the image's own.
IMAGES: dict[str, tuple[Callable[[Path], str], list[str]]] = {
    "apptainer/singularity/issues/5405": (_read_only_root, ["echo", "yes"]),
    "apptainer/singularity/issues/976": (_no_shell, []),
    "imagegenius/docker-immich/pull/717": (_dockers_zstd, ["echo", "yes"]),
    "indigo-dc/udocker/issues/449": (_a_layer_twice, ["cat", "/twice/f"]),
}


@pytest.mark.parametrize("report", IMAGES)
def test_an_image_that_other_tools_do_not_run(tmp_path: Path, report: str) -> None:
    make, command = IMAGES[report]
    builds = Builds(tmp_path)
    words = ["--", *command] if command else []
    assert builds.bareboat("run", "--engine", "bubblewrap", "--image", make(tmp_path), *words).out == "yes\n"


def test_the_page_has_each_report() -> None:
    page = PAGE.read_text()
    assert [report for report in (*TREES, *IMAGES) if f"https://github.com/{report})" not in page] == []
