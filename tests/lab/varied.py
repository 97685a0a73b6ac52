"""Images that differ in what makes layers hard: each a real OCI layout, made by buildah, skopeo and GNU tar.

They are built once on a machine and kept in $XDG_CACHE_HOME/bareboat-lab, under a name that changes with this
file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import secrets
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import tool

#: Linked statically.
_BUSYBOX = "/bin/busybox"

#: Debian's busybox, as a shell, finds its other commands in itself.
_BASE = """\
FROM scratch
COPY bin /bin
"""

#: Files become folders, folders links, links files; a later layer writes through what an earlier one linked.
_SWAPS = r"""
RUN mkdir -p /usr/lib /lib /opt/a /opt/b && echo 1 > /lib/one && echo 2 > /opt/a/two && ln -s a /opt/c
RUN mv /lib/one /usr/lib/ && rmdir /lib && ln -s usr/lib /lib && ln -s /opt/b/absolute /opt/dangling
RUN echo 3 > /lib/three && echo 4 > /opt/c/four && ln -s ../../../../etc /opt/b/up
RUN rm /opt/c && mkdir /opt/c && echo 5 > /opt/c/five && rm -r /opt/a && ln -s b /opt/a
RUN rm /opt/a && echo 'a file now' > /opt/a && rm -r /opt/c && echo 'another' > /opt/c && echo 6 > /lib/six
RUN rm /opt/a && mkdir -p /opt/a/deep/er && echo 7 > /opt/a/deep/er/seven && rm /lib && mkdir /lib
RUN ln -s loop2 /opt/loop1 && ln -s loop1 /opt/loop2 && ln -s . /opt/self && ln -s / /opt/root
"""

#: Things go, come back, and go with all that they held.
_WHITEOUTS = r"""
RUN mkdir -p /d/e/f /keep /gone && touch /d/1 /d/e/2 /d/e/f/3 /keep/4 /gone/5 && ln -s d /link
RUN rm -r /d/e && rm /keep/4 && rm -r /gone && rm /link
RUN mkdir -p /d/e && echo back > /d/e/2 && echo back > /keep/4 && mkdir /link && echo in > /link/in
RUN rm -r /d && mkdir /d && echo new > /d/new && rm -r /link && touch /gone
RUN rm /gone && mkdir -p /gone/gone && touch /gone/gone/gone && chmod 700 /keep
RUN touch /keep/wh. /keep/.w /keep/.wh && rm /bin/busybox.gone 2>/dev/null || true
"""

#: Groups of hard links within a layer; later layers break, enlarge and remove them.
_HARD_LINKS = r"""
RUN mkdir -p /h/a /h/b && echo one > /h/a/1 && ln /h/a/1 /h/a/2 && ln /h/a/1 /h/b/3 && ln -s 1 /h/a/sym \
 && ln /h/a/sym /h/b/sym && mkfifo /h/fifo && ln /h/fifo /h/b/fifo && ln /bin/busybox /h/busybox
RUN echo changed >> /h/a/2
RUN rm /h/a/1
RUN ln /h/b/3 /h/b/4 && ln /h/b/3 /h/a/5
RUN for i in $(seq 100); do echo $i > /h/b/n$i; ln /h/b/n$i /h/a/n$i; done
RUN chmod 640 /h/a/n7 && rm /h/b/n8
"""

#: Modes and owners. Bareboat drops setuid and setgid, and keeps what a user needs to read and to remove.
_MODES = r"""
RUN mkdir /m && cd /m \
 && for mode in 0000 0001 0010 0200 0400 0444 0600 0644 0666 0755 0777 1644 1777 2755 4755 6777; \
 do echo $mode > f$mode; chmod $mode f$mode; mkdir d$mode; echo in > d$mode/in; chmod $mode d$mode; done
RUN cd /m && chown 1000:1000 f4755 d0755 && chown 65534:7 f0600 && chmod 4755 f4755 && mkfifo -m 666 fifo \
 && mkfifo -m 0 shut
RUN cd /m && chmod 755 d0000 && chmod 0 d0755 && chmod 1777 d0777 && echo more >> d0000/in
"""

_NAMES = r"""
RUN mkdir /n && cd /n && touch -- "$(printf 'caf\351')" "$(printf 'caf\303\251')" "$(printf 'cafe\314\201')" \
 "$(printf 'new\nline')" "$(printf 'tab\ttab')" "$(printf 'bell\007')" ' lead' 'trail ' '-rf' '*' '\' \
 'a"b' "it's" '%s' '$HOME' Case CASE case 'con' 'a:b' '.hidden' '..double' '...' "$(printf '\377\376\001')"
RUN cd /n && touch -- "$(printf '%0255d' 0)" && mkdir "$(printf '%0200d' 1)" \
 && touch "$(printf '%0200d' 1)/$(printf '%0100d' 2)"
RUN cd /n && p=deep && for i in $(seq 40); do p=$p/a_folder_with_a_long_name_$i; done \
 && mkdir -p $p && echo deep > $p/file && ln -s /$p link-to-deep && ln $p/file hard-link-to-deep
RUN cd /n && rm CASE "$(printf 'caf\351')" && echo 1 > case && rm -r "$(printf '%0200d' 1)"
"""

#: Sizes around the tar's blocks and the unpacker's buffers, holes, and times.
_SIZES = r"""
RUN mkdir /s && cd /s \
 && for size in 0 1 511 512 513 1023 1024 10239 10240 65535 65536 65537 1048575 1048576 1048577; \
 do head -c $size /bin/busybox > f$size; done
RUN cd /s && truncate -s 8M hole && truncate -s 4M tail && echo end >> tail \
 && echo begin > head && truncate -s 3M head \
 && dd if=/bin/busybox of=middle bs=64k seek=20 count=3 2>/dev/null && truncate -s 5M middle
RUN cd /s && touch -d '1970-01-01 00:00:00' f0 && touch -d '2037-12-31 23:59:59' f1 \
 && touch -h -d '2001-09-09 01:46:40' /bin/sh && touch -d '1980-01-01 00:00:01' . \
 && touch -d '2106-02-08 00:00:00' f511
RUN truncate -s 1M /s/hole && head -c 100 /s/f65536 > /s/f65537
"""

_SETTINGS = """
ENV PATH=/usr/local/bin:/bin LANG=C.UTF-8 EMPTY= QUOTED="a b 'c'"
ENV AGAIN=$PATH:/more
LABEL org.opencontainers.image.title="varied" lines="a\\nb"
WORKDIR /made/by/workdir
RUN pwd > here
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGINT
USER 1000:1000
ENTRYPOINT ["/bin/sh", "-c"]
CMD ["echo", "two words"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An image in an OCI layout folder, tagged `1`."""

    name: str
    folder: Path

    @property
    def reference(self) -> str:
        return f"oci:{self.folder}:1"


def names() -> tuple[str, ...]:
    return tuple(_MAKERS)


def layout(name: str) -> Layout:
    """The image, built now unless it is in the cache. Skips the test where a tool is missing."""
    cache = _cache()
    folder = cache / name
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        builder = _Builder()
        try:
            made = builder.work / "layout"
            _MAKERS[name](builder, made)
            # Beside its place first, so that it appears whole; whoever comes second leaves the first's.
            new = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache))
            shutil.copytree(made, new / "layout")
            if not folder.exists():
                os.rename(new / "layout", folder)
            shutil.rmtree(new)
        finally:
            builder.remove()
    return Layout(name=name, folder=folder)


def _cache() -> Path:
    """A folder that changes its name with this file, and with the busybox that the images hold."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    key = hashlib.sha256(Path(__file__).read_bytes() + Path(tool("busybox")).read_bytes()).hexdigest()[:16]
    return Path(base) / "bareboat-lab" / f"varied-{key}"


class Containers:
    """podman and buildah with storage of their own, as root and as an ordinary user."""

    def __init__(self) -> None:
        # Short, because of the sockets that are made there, and fit to be part of an image's name.
        self.work = work = Path(f"/tmp/fl-{secrets.token_hex(4)}")
        work.mkdir(mode=0o755)
        # vfs: it works on every file system, also where / is an overlay.
        self.storage = ("--root", f"{work}/graph", "--runroot", f"{work}/run", "--storage-driver", "vfs")
        runtime = work / "xdg"
        runtime.mkdir(mode=0o700, exist_ok=True)
        policy = work / "home" / ".config" / "containers" / "policy.json"
        policy.parent.mkdir(parents=True, exist_ok=True)
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(work / "home"),
            "XDG_RUNTIME_DIR": str(runtime),
            "TMPDIR": str(work),
            "LANG": "C.UTF-8",
            "BUILDAH_ISOLATION": "chroot",  # needs neither a runtime nor cgroups
        }

    def run(self, *argv: str) -> str:
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def podman(self, *arguments: str) -> str:
        """In a namespace of buildah's, for in one of its own it leaves a process behind."""
        return self.as_its_user(tool("podman"), *self.storage, *arguments)

    def buildah(self, *arguments: str) -> str:
        return self.run(tool("buildah"), *self.storage, *arguments)

    def as_its_user(self, *argv: str) -> str:
        """A command with the rights that its storage needs: files there have other owners."""
        if os.geteuid() == 0:
            return self.run(*argv)
        return self.buildah("unshare", *argv)

    def remove(self) -> None:
        subprocess.run(
            [
                *(() if os.geteuid() == 0 else ("buildah", *self.storage, "unshare")),
                "rm",
                "-rf",
                str(self.work),
            ],
            env=self.environment,
            capture_output=True,
            check=False,
        )


class _Builder(Containers):
    def build(self, dockerfile: str, *options: str, tag: str = "image", base: bool = True) -> str:
        """Build, each step a layer of its own; returns the image's name."""
        context = self.work / "context"
        context.mkdir(exist_ok=True)
        (context / "bin").mkdir(exist_ok=True)
        shutil.copyfile(_BUSYBOX, context / "bin" / "busybox")
        os.chmod(context / "bin" / "busybox", 0o755)
        if not (context / "bin" / "sh").is_symlink():
            (context / "bin" / "sh").symlink_to("busybox")
        (context / "Dockerfile").write_text((_BASE if base else "") + dockerfile)
        self.buildah("bud", "--quiet", "--layers", *options, "--tag", f"localhost/{tag}", str(context))
        return f"localhost/{tag}"

    def push(self, image: str, made: Path) -> None:
        self.buildah("push", "--quiet", image, f"oci:{made}:1")


def _of(dockerfile: str) -> Callable[[_Builder, Path], None]:
    def make(builder: _Builder, made: Path) -> None:
        builder.push(builder.build(dockerfile), made)

    return make


def _attributes(_builder: _Builder, made: Path) -> None:
    """Extended attributes: users' own, and rights that nobody can hand on to an ordinary user. All are in
    the topmost layer: podman's vfs driver loses them when it copies a layer for the next."""
    attributes = (
        ("user.plain", "a value"),
        ("user.long", "x" * 1000),
        ("user.unicode", "schön"),
        # cap_net_bind_service, as setcap writes it
        ("security.capability", "\x01\x00\x00\x02\x00\x04" + "\x00" * 14),
    )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for kind, mode in ((tarfile.DIRTYPE, 0o755), (tarfile.REGTYPE, 0o644)):
            for name, value in (("user.none", None), *attributes):
                if kind == tarfile.DIRTYPE and name.startswith("security"):
                    continue
                entry = tarfile.TarInfo(f"x-{name}" if kind == tarfile.DIRTYPE else f"x-user.none/{name}")
                entry.type, entry.mode, entry.mtime = kind, mode, 1_000_000_000
                if value is not None:
                    entry.pax_headers = {f"SCHILY.xattr.{name}": value}
                tar.addfile(entry)
    _write_layout(
        made,
        [_written([("below", None)]), _written([("below", None), ("below/file", b"1")]), buffer.getvalue()],
    )


def _zstd(builder: _Builder, made: Path) -> None:
    """Layers compressed with zstd, and others not at all."""
    image = builder.build(
        "RUN mkdir /z && seq 100000 > /z/numbers\nRUN cp /bin/busybox /z/ && rm /z/numbers\n"
    )
    options = ("--dest-compress", "--dest-compress-format", "zstd")
    storage = f"[vfs@{builder.work}/graph+{builder.work}/run]"
    copy = (
        tool("skopeo"),
        "copy",
        "--quiet",
        *options,
        f"containers-storage:{storage}{image}",
        f"oci:{made}:1",
    )
    builder.as_its_user(*copy)


def _architectures(builder: _Builder, made: Path) -> None:
    """An index of two architectures; the config has every setting that a Dockerfile can make."""
    builder.build(_SETTINGS, tag="here")
    builder.build("FROM scratch\nCOPY bin /elsewhere\n", "--arch", "arm64", tag="there", base=False)
    builder.buildah("manifest", "create", "localhost/both")
    for tag in ("there", "here"):
        builder.buildah("manifest", "add", "localhost/both", f"localhost/{tag}")
    builder.buildah("manifest", "push", "--quiet", "--all", "localhost/both", f"oci:{made}:1")


def _tars(builder: _Builder, made: Path) -> None:
    """Layers as other tools write them: GNU tar's own format, pax with nanoseconds and holes, ustar and V7
    headers, whiteouts and opaque folders by hand, several gzip members, an empty layer."""
    tree = builder.work / "tree"
    (tree / "bin").mkdir(parents=True)
    shutil.copyfile(_BUSYBOX, tree / "bin" / "busybox")
    (tree / "t" / ("long" * 30) / ("name" * 30)).mkdir(parents=True)
    (tree / "t" / ("long" * 30) / ("name" * 30) / "file").write_text("deep")
    (tree / "t" / "link").symlink_to("over/" * 40 + "there")
    (tree / "t" / "hard").hardlink_to(tree / "bin" / "busybox")
    with open(tree / "t" / "holes", "wb") as stream:
        for number in range(40):  # more pieces than the first header of a sparse file can list
            stream.seek(number * 131072)
            stream.write(b"piece %d" % number)
        stream.truncate(6_000_000)
    for number, path in enumerate(sorted(tree.rglob("*"), reverse=True)):
        stamp = 1_700_000_000_123_456_789 + number
        os.utime(path, ns=(stamp, stamp), follow_symlinks=False)
    layers = [
        # Without --sparse: podman cannot unpack what that makes in this format.
        _gnu_tar(tree, "--format=gnu", "bin", "t"),
        _gnu_tar(tree, "--format=pax", "--sparse", "--transform=s,^t,pax,", "bin", "t"),
        _gnu_tar(tree, "--format=pax", "--sparse", "--sparse-version=0.1", "--transform=s,^t,pax01,", "t"),
        _gnu_tar(tree, "--format=v7", "--transform=s,^bin,v7,", "bin"),
        _gnu_tar(tree, "--format=ustar", "--transform=s,^t/holes,ustar,", "t/holes"),
        _written([("t", None), ("t/.wh..wh..opq", b""), ("t/new", b"after the opaque mark"),
                  ("v7", None), ("v7/.wh.busybox", b"")]),
        _written([]),
        _written([("v7", None), ("v7/busybox", b"back"), ("pax", None), ("pax/x", b"new")]),
    ]  # fmt: skip
    _write_layout(made, layers)


def _many_layers(_builder: _Builder, made: Path) -> None:
    """More layers than mount(2) takes paths of; each adds a file, replaces one and removes one."""
    layers = [_written([("y", None), *((f"y/{number}", None) for number in range(7))])]
    for number in range(60):
        entries = [("y", None), (f"y/{number % 7}", None), (f"y/{number % 7}/{number}", b"%d" % number)]
        if number >= 9:
            gone = number - 9
            entries += [(f"y/{gone % 7}", None), (f"y/{gone % 7}/.wh.{gone}", b"")]
        layers.append(_written([*entries, ("y/last", b"%d" % number)]))
    _write_layout(made, layers)


def _gnu_tar(tree: Path, *options: str) -> bytes:
    argv = ["tar", "-C", str(tree), "--sort=name", "--owner=0", "--group=0", "-cf", "-", *options]
    return subprocess.run(argv, capture_output=True, check=True).stdout


def _written(entries: Sequence[tuple[str, bytes | None]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.mtime = 1_600_000_000.5
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _write_layout(made: Path, tars: Sequence[bytes]) -> None:
    """An OCI layout of these layers; the first is compressed in two gzip members, as pigz and stargz do."""
    blobs = made / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    kind = "application/vnd.oci.image"
    packed = [gzip.compress(tar[:100_000], mtime=0) + gzip.compress(tar[100_000:], mtime=0) for tar in tars]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/busybox"]},
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars],
        },
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": put(json.dumps(config).encode(), f"{kind}.config.v1+json"),
        "layers": [put(data, f"{kind}.layer.v1.tar+gzip") for data in packed],
    }
    root = put(json.dumps(manifest).encode(), f"{kind}.manifest.v1+json")
    root["annotations"] = {"org.opencontainers.image.ref.name": "1"}
    (made / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [root]}))
    (made / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


_MAKERS: dict[str, Callable[[_Builder, Path], None]] = {
    "swaps": _of(_SWAPS),
    "whiteouts": _of(_WHITEOUTS),
    "hard-links": _of(_HARD_LINKS),
    "modes": _of(_MODES),
    "attributes": _attributes,
    "names": _of(_NAMES),
    "sizes": _of(_SIZES),
    "zstd": _zstd,
    "many-layers": _many_layers,
    "architectures": _architectures,
    "tars": _tars,
}
