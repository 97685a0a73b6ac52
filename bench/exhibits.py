"""What bench/pulls pulls, and the registries that it pulls from.

The images are built once, by mmdebstrap and buildah as an ordinary user, from the recipes in
tests/lab/images, and kept as OCI layouts in $XDG_CACHE_HOME/bareboat-lab.

All three take about 8 GB there, and twice that while they are built. Some of it belongs to users whom only a
user namespace can name: `buildah unshare rm -rf FOLDER` removes it.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

RECIPES = Path(__file__).resolve().parent.parent / "tests" / "lab" / "images"

#: Each recipe and the one that it is built on.
PARENTS = {
    "base": "",
    "python": "base",
    "torch": "python",
    "app": "torch",
    "small": "python",
    "big": "python",
}

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """An image in an OCI layout folder, tagged `1`."""

    name: str
    layout: Path
    #: The compressed layers, bottom first.
    blobs: tuple[Path, ...]

    @property
    def compressed_bytes(self) -> int:
        return sum(blob.stat().st_size for blob in self.blobs)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "bareboat-lab"


def exhibit(name: str) -> Exhibit:
    """The image, built now unless it is in the cache."""
    layout = cache_folder() / "images" / name
    if not layout.exists():
        _build(name)
    manifest = _document(layout, json.loads((layout / "index.json").read_bytes())["manifests"][0]["digest"])
    return Exhibit(
        name=name,
        layout=layout,
        blobs=tuple(_blob(layout, layer["digest"]) for layer in manifest["layers"]),
    )


def _blob(layout: Path, digest: str) -> Path:
    return layout.joinpath("blobs", *digest.split(":"))


def _document(layout: Path, digest: str) -> dict[str, list[dict[str, str]]]:
    document: dict[str, list[dict[str, str]]] = json.loads(_blob(layout, digest).read_bytes())
    return document


def _build(name: str) -> None:
    cache = cache_folder()
    context, storage = cache / "context", cache / "containers"
    context.mkdir(parents=True, exist_ok=True)
    buildah = [
        "buildah", "--root", str(storage), "--runroot", str(cache / "run"), "--storage-driver", "overlay",
    ]  # fmt: skip
    chain = [name]
    while PARENTS[chain[0]]:
        chain.insert(0, PARENTS[chain[0]])
    if not (context / "base.tar").exists():
        # As an ordinary user; no device nodes, which such a user could not unpack with tar.
        call("mmdebstrap", "--mode=unshare", "--variant=minbase", "--skip=output/dev", "--quiet",
             "bookworm", str(context / "base.tar.new"), "--format=tar")  # fmt: skip
        os.rename(context / "base.tar.new", context / "base.tar")
    for step in chain:
        if subprocess.run([*buildah, "inspect", f"localhost/lab/{step}:1"], capture_output=True).returncode:
            # chroot isolation needs no OCI runtime, which would need cgroups of its own.
            call(*buildah, "bud", "--isolation", "chroot", "--network", "host", "--quiet", *_pip_settings(),
                 "--volume", f"{RECIPES}:/recipes:ro", "--tag", f"localhost/lab/{step}:1",
                 "--file", str(RECIPES / f"{step}.Dockerfile"), str(context))  # fmt: skip
    new = cache / "images" / f".{name}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.parent.mkdir(exist_ok=True)
    call(*buildah, "push", "--quiet", f"localhost/lab/{name}:1", f"oci:{new}:1")
    os.rename(new, cache / "images" / name)


def _pip_settings() -> list[str]:
    """What pip inside the build needs to reach what pip on this machine reaches."""
    words = []
    if os.path.exists(_CERTIFICATES):
        words += ["--volume", f"{_CERTIFICATES}:/run/certificates.crt:ro",
                  "--env", "PIP_CERT=/run/certificates.crt"]  # fmt: skip
    for place in os.environ.get("PIP_FIND_LINKS", "").split():
        words += ["--env", f"PIP_FIND_LINKS={place}"]
        if os.path.isdir(place):
            words += ["--volume", f"{place}:{place}:ro"]
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A running docker-registry. `log` holds one line for each request."""

    address: str
    log: Path

    def sent(self, since: int = 0) -> tuple[int, int]:
        """(blobs, bytes of blobs) that it has sent whole or in part, from an offset of its log on."""
        with open(self.log, "rb") as stream:
            stream.seek(since)
            found = re.findall(rb'"GET /v2/\S+/blobs/\S+ HTTP/1.1" 20[06] (\d+)', stream.read())
        return len(found), sum(int(size) for size in found)


@contextlib.contextmanager
def registry(folder: Path, *, tls: bool = False) -> Iterator[Registry]:
    """Debian's docker-registry on a free port of the loopback interface, over a folder of its own.

    With `tls` it has a certificate that nobody knows.
    """
    name = "tls" if tls else "plain"
    data = cache_folder() / "registry"
    data.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    lines = [
        "version: 0.1",
        "log: {accesslog: {disabled: false}, level: warn}",
        f"storage: {{filesystem: {{rootdirectory: {json.dumps(str(data))}}}}}",
        "http:",
        f"  addr: 127.0.0.1:{port}",
    ]
    if tls:
        certificate, key = folder / "registry.crt", folder / "registry.key"
        call("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
             "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
             "-keyout", str(key), "-out", str(certificate))  # fmt: skip
        lines.append(f"  tls: {{certificate: {json.dumps(str(certificate))}, key: {json.dumps(str(key))}}}")
    settings, log = folder / f"{name}.yml", folder / f"{name}.log"
    settings.write_text("\n".join(lines) + "\n")
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(settings)], stdout=stream, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(port, process, log)
        yield Registry(address=f"localhost:{port}", log=log)
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    sys.exit(f"docker-registry does not start:\n{log.read_text(errors='replace')}")


def publish(image: Exhibit, to: Registry) -> None:
    """Push the image to `lab/NAME:1`; what is there already is not sent again."""
    call("skopeo", "copy", "--quiet", "--dest-tls-verify=false", f"oci:{image.layout}:1",
         f"docker://{to.address}/lab/{image.name}:1")  # fmt: skip


def call(*argv: str, environment: dict[str, str] | None = None) -> None:
    """Run a command that has to work; its output is shown when it does not."""
    done = subprocess.run(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        sys.exit(f"{_shown(argv)} ended with {done.returncode}:\n{done.stdout.decode(errors='replace')}")


def _shown(argv: Sequence[str]) -> str:
    return " ".join(argv)
