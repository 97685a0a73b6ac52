"""Registries for tests: the real `docker-registry`, and one of our own that misbehaves as told."""

import base64
import contextlib
import gzip
import hashlib
import json
import os
import re
import select
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from machines import HERE
from tools import tool

from bareboat_images.registry.pusher import Pusher

#: The log-in that the registries with log-ins take.
USER, PASSWORD = "alice", "s3cret-Pass"
#: bcrypt of PASSWORD, the only kind that docker-registry reads.
_HTPASSWD = USER + ":$2b$05$9eJ/lkNUh01mHPa1L4yWLuA4HWoSO6eG3/TdPV2WfyXPt8BxGtMjq\n"

_CONFIG = """\
version: 0.1
log: {{level: warn, accesslog: {{disabled: {quiet}}}}}
storage:
  filesystem: {{rootdirectory: "{folder}/content"}}
  delete: {{enabled: true}}
http:
  addr: 127.0.0.1:{port}
{tls}{auth}"""
_TLS = """\
  tls: {{certificate: "{folder}/server.pem", key: "{folder}/server.key"}}
"""
_AUTH = """\
auth:
  htpasswd: {{realm: tests, path: "{folder}/htpasswd"}}
"""


@dataclass(slots=True, kw_only=True)
class RealRegistry:
    """A running docker-registry. `address` is HOST:PORT, as in the name of an image."""

    folder: Path
    port: int
    ca_file: Path | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, at the same port each time, and wait until it answers."""
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [tool("docker-registry"), "serve", str(self.folder / "config.yml")],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # It would take any REGISTRY_… for a setting.
                env={name: value for name, value in os.environ.items() if not name.startswith("REGISTRY_")},
            )
        deadline = time.monotonic() + 30
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"docker-registry did not start:\n{self.log}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


@contextlib.contextmanager
def real_registry(
    folder: Path, *, tls: bool = False, log_in: bool = False, access_log: bool = False
) -> Iterator[RealRegistry]:
    """A docker-registry of the test's own on a free port of 127.0.0.1; its content is kept in `folder`, and
    its log in `folder`/log, with `access_log` a line for each request."""
    tool("docker-registry")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    ca_file = make_certificates(folder) if tls else None
    if log_in:
        (folder / "htpasswd").write_text(_HTPASSWD)
    config = _CONFIG.format(
        quiet="false" if access_log else "true",
        folder=folder,
        port=port,
        tls=_TLS.format(folder=folder) if tls else "",
        auth=_AUTH.format(folder=folder) if log_in else "",
    )
    (folder / "config.yml").write_text(config)
    registry = RealRegistry(folder=folder, port=port, ca_file=ca_file)
    registry.start()
    try:
        yield registry
    finally:
        registry.kill()


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_certificates(folder: Path, *hosts: str) -> Path:
    """An authority of our own (ca.pem) and a server of 127.0.0.1, localhost and other hosts that it vouches
    for."""
    openssl = tool("openssl")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Tests")
    names = ",".join(("subjectAltName=IP:127.0.0.1", *(f"DNS:{host}" for host in ("localhost", *hosts))))
    run("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text(names)
    sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    run("x509", "-req", "-in", "server.csr", *sign, "-out", "server.pem")
    return folder / "ca.pem"


# -- content -------------------------------------------------------------------------------------------

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """An image as it is in a registry. `tars`: what its layers are when they are unpacked."""

    manifest: bytes
    config: bytes
    layers: tuple[bytes, ...]
    tars: tuple[bytes, ...]

    @property
    def digest(self) -> str:
        return sha256(self.manifest)

    @property
    def diff_ids(self) -> tuple[str, ...]:
        return tuple(map(sha256, self.tars))

    @property
    def blobs(self) -> dict[str, bytes]:
        return {sha256(each): each for each in (*self.layers, self.config, self.manifest)}


def pack(*tars: bytes, compressed: bool = True, architecture: str = HERE.oci, **execution: object) -> Packed:
    """An image of these tars, bottom first. `execution`: Env, Entrypoint, … of its config."""
    layers = tuple(gzip.compress(each, 1, mtime=0) if compressed else each for each in tars)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["PATH=/usr/bin:/bin"], **execution},
        "rootfs": {"type": "layers", "diff_ids": [sha256(each) for each in tars]},
    }

    def described(media_type: str, data: bytes) -> dict[str, object]:
        return {"mediaType": media_type, "digest": sha256(data), "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(CONFIG, written := json.dumps(config).encode()),
        "layers": [described(LAYER + "+gzip" * compressed, each) for each in layers],
    }
    return Packed(manifest=json.dumps(manifest).encode(), config=written, layers=layers, tars=tars)


def push(pusher: Pusher, image: Packed, reference: str) -> str:
    """Push an image; return its digest."""
    for blob in (image.config, *image.layers):
        if not pusher.has_blob(sha256(blob)):
            pusher.upload(sha256(blob), len(blob), [blob])
    return pusher.put_manifest(reference, image.manifest, MANIFEST)


def auth_file(path: Path, registry: str, user: str = USER, password: str = PASSWORD) -> Path:
    """What `podman login` would have written."""
    packed = base64.b64encode(f"{user}:{password}".encode()).decode()
    path.write_text(json.dumps({"auths": {registry: {"auth": packed}}}))
    return path


# -- a registry that misbehaves ------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request as it came, and how many bytes of body it was answered with."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes = b""
    sent_bytes: int = 0


Fault = Callable[["_Handler"], bool]
"""What is done instead of the right answer; False: the right answer, after all."""


class FakeRegistry:
    """A registry in a thread, made of dictionaries, which does wrong what `when` tells it."""

    def __init__(self, *, certificates: Path | None = None) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[bytes, str]] = {}
        self.asked: list[Asked] = []
        #: None, "basic" or "bearer"; `realm` names the token service, by default our own /token.
        self.log_in: str | None = None
        self.realm = ""
        self.token_life_s = 300
        self.tokens: set[str] = set()
        self.closing = threading.Event()
        self._faults: list[_Rule] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.registry = self
        self._scheme = "http"
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
            # The handshake belongs into the request's own thread: a client that fails it harms no other.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.address}"

    def __enter__(self) -> "FakeRegistry":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def add(self, image: Packed, tag: str = "latest") -> None:
        for blob in (image.config, *image.layers):
            self.blobs[sha256(blob)] = blob
        self.manifests[tag] = self.manifests[image.digest] = (image.manifest, MANIFEST)

    def when(self, pattern: str, fault: Fault, *, times: int = 1_000_000) -> None:
        """Do this for the next `times` requests whose `METHOD /path` holds the pattern; first come, first
        served."""
        self._faults.append(_Rule(pattern=re.compile(pattern), fault=fault, times=times))

    def forget(self) -> None:
        """Do right from now on."""
        with self._lock:
            self._faults.clear()

    def counted(self, pattern: str) -> list[Asked]:
        """The requests whose `METHOD /path` holds the pattern."""
        return [each for each in self.asked if re.search(pattern, f"{each.method} {each.path}")]

    def body_bytes(self, digest: str) -> int:
        """How many bytes of a blob have gone out, all answers together."""
        return sum(each.sent_bytes for each in self.counted(f"GET .*/blobs/{digest}"))

    def fault_for(self, line: str) -> Fault | None:
        with self._lock:
            for rule in self._faults:
                if rule.times > 0 and rule.pattern.search(line):
                    rule.times -= 1
                    return rule.fault
        return None


@dataclass(slots=True, kw_only=True)
class _Rule:
    pattern: re.Pattern[str]
    fault: Fault
    times: int


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: FakeRegistry

    def handle_error(self, *_: object) -> None:
        """Clients that go away are what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    asked: Asked

    def log_message(self, *_: object) -> None:
        """Not to the screen: `asked` has it."""

    def version_string(self) -> str:
        return "fake"

    def handle_one_request(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().handle_one_request()
            return
        self.close_connection = True

    def _do(self) -> None:
        parts = urlsplit(self.path)
        self.asked = Asked(
            method=self.command,
            path=parts.path,
            query=parse_qs(parts.query),
            headers={name.lower(): value for name, value in self.headers.items()},
        )
        registry = self.server.registry
        registry.asked.append(self.asked)
        fault = registry.fault_for(f"{self.command} {parts.path}")
        if fault is not None and fault(self):
            return
        self.asked.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(registry, parts.path)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _do

    def give(self, status: int, body: bytes = b"", *, claimed: int | None = None, **headers: str) -> None:
        """Answer; `claimed` is a Content-Length that is not the body's. Underscores in names are dashes."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if claimed is None else claimed))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.send(body)

    def send(self, body: bytes) -> None:
        view = memoryview(body)
        for at in range(0, len(view), 65536):
            piece = view[at : at + 65536]
            self.asked.sent_bytes += len(piece)  # before, because the client may be done right after
            self.wfile.write(piece)

    def _answer(self, registry: FakeRegistry, path: str) -> None:
        if path == "/token":
            self._token(registry)
            return
        if not self.allowed(registry):
            return
        if found := re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", path):
            self._manifest(registry, found[2])
        elif found := re.fullmatch(r"/v2/(.+)/blobs/(sha(?:256|512):[0-9a-f]+)", path):
            self._blob(registry.blobs.get(found[2]))
        elif found := re.fullmatch(r"/v2/(.+)/tags/list", path):
            tags = [name for name in registry.manifests if ":" not in name]
            self.give(200, json.dumps({"name": found[1], "tags": tags}).encode())
        elif self.command == "POST" and path.endswith("/blobs/uploads/"):
            self.give(202, Location="/v2/up/blobs/uploads/1?state=x")
        elif self.command == "PUT" and "/blobs/uploads/" in path:
            digest = self.asked.query["digest"][0]
            if sha256(self.asked.body) == digest:
                registry.blobs[digest] = self.asked.body
                self.give(201)
            else:
                self.give(400, _errors("DIGEST_INVALID", "the digest is another"))
        else:
            self.give(404)

    def _manifest(self, registry: FakeRegistry, reference: str) -> None:
        if self.command == "PUT":
            registry.manifests[reference] = (self.asked.body, self.headers["Content-Type"])
            self.give(201, Docker_Content_Digest=sha256(self.asked.body))
        elif reference in registry.manifests:
            data, media_type = registry.manifests[reference]
            self.give(200, data, Content_Type=media_type, Docker_Content_Digest=sha256(data))
        else:
            self.give(404, _errors("MANIFEST_UNKNOWN", "manifest unknown"))

    def _blob(self, blob: bytes | None) -> None:
        if blob is None:
            self.give(404, _errors("BLOB_UNKNOWN", "blob unknown"))
            return
        start = self.start
        if start >= len(blob) > 0:
            self.give(416)
        elif start:
            self.give(206, blob[start:], Content_Range=f"bytes {start}-{len(blob) - 1}/{len(blob)}")
        else:
            self.give(200, blob)

    @property
    def start(self) -> int:
        """The first byte that is asked for."""
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        return int(found[1]) if found else 0

    def allowed(self, registry: FakeRegistry) -> bool:
        sent = self.headers.get("Authorization") or ""
        if registry.log_in == "basic" and sent != _basic():
            self.give(401, _errors("UNAUTHORIZED", "log in"), WWW_Authenticate='Basic realm="tests"')
            return False
        if registry.log_in == "bearer" and sent.removeprefix("Bearer ") not in registry.tokens:
            found = re.fullmatch(r"/v2/(.+?)/(manifests|blobs|tags)/.*", self.asked.path)
            actions = "pull" if self.command in ("GET", "HEAD") else "pull,push"
            scope = f'scope="repository:{found[1] if found else ""}:{actions}"'
            realm = registry.realm or f"{registry.url}/token"
            challenge = f'Bearer realm="{realm}",service="fake, \\"quoted\\"",{scope}'
            self.give(401, _errors("UNAUTHORIZED", "a token is wanted"), WWW_Authenticate=challenge)
            return False
        return True

    def _token(self, registry: FakeRegistry) -> None:
        sent = self.headers.get("Authorization")
        if sent is not None and sent != _basic():
            self.give(401, _errors("UNAUTHORIZED", "incorrect username or password"))
            return
        token = f"token-{len(registry.tokens) + 1}-of-{registry.port}"
        registry.tokens.add(token)
        self.give(200, json.dumps({"token": token, "expires_in": registry.token_life_s}).encode())


def _basic() -> str:
    return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def _errors(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


# -- faults --------------------------------------------------------------------------------------------


def answer(status: int, body: bytes = b"", **headers: str) -> Fault:
    """Answer this, whatever was asked."""

    def fault(handler: _Handler) -> bool:
        handler.give(status, body, **headers)
        return True

    return fault


def redirect(location: str) -> Fault:
    """Send elsewhere whoever is allowed in."""

    def fault(handler: _Handler) -> bool:
        if handler.allowed(handler.server.registry):
            handler.give(307, Location=location)
        return True

    return fault


def hang_up(handler: _Handler) -> bool:
    """Close the connection without a word."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)
    return True


def cut_after(count: int, *, reset: bool = False) -> Fault:
    """Promise the whole of a blob, from where it is asked for, and break off after `count` bytes."""

    def fault(handler: _Handler) -> bool:
        _begin(handler, count)
        if reset:
            linger = (1).to_bytes(4, "little") + bytes(4)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        handler.close_connection = True
        return True

    return fault


def stall_after(count: int) -> Fault:
    """Promise the whole of a blob, send `count` bytes, and then nothing, with the connection open."""

    def fault(handler: _Handler) -> bool:
        _begin(handler, count)
        handler.server.registry.closing.wait(60)
        handler.close_connection = True
        return True

    return fault


def trickle(every_s: float) -> Fault:
    """Promise the whole of a blob, and send a byte now and then."""

    def fault(handler: _Handler) -> bool:
        blob = _begin(handler, 0)
        for at in range(len(blob)):
            if handler.server.registry.closing.wait(every_s):
                break
            handler.send(blob[at : at + 1])
        handler.close_connection = True
        return True

    return fault


def ignore_range(handler: _Handler) -> bool:
    """Send the whole blob, whatever part of it was asked for."""
    blob = handler.server.registry.blobs[handler.asked.path.rpartition("/")[2]]
    handler.give(200, blob)
    return True


def chunked(handler: _Handler) -> bool:
    """Send the blob without saying how large it is."""
    blob = handler.server.registry.blobs[handler.asked.path.rpartition("/")[2]]
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for at in range(0, len(blob), 10_000):
        piece = blob[at : at + 10_000]
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    handler.wfile.write(b"0\r\n\r\n")
    return True


def raw(data: bytes) -> Fault:
    """Send these bytes and close."""

    def fault(handler: _Handler) -> bool:
        handler.wfile.write(data)
        handler.close_connection = True
        return True

    return fault


def repeated(head: bytes, piece: bytes, *, every_s: float) -> Fault:
    """Send these bytes, and then the piece again and again."""

    def fault(handler: _Handler) -> bool:
        handler.close_connection = True
        handler.wfile.write(head)
        while not handler.server.registry.closing.wait(every_s):
            handler.wfile.write(piece)
        return True

    return fault


def _begin(handler: _Handler, count: int) -> bytes:
    blob = handler.server.registry.blobs[handler.asked.path.rpartition("/")[2]]
    start = handler.start
    headers = {"Content_Range": f"bytes {start}-{len(blob) - 1}/{len(blob)}"} if start else {}
    handler.give(206 if start else 200, blob[start : start + count], claimed=len(blob) - start, **headers)
    return blob[start + count :]


# -- a proxy -------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class FakeProxy:
    """An HTTP proxy in a thread that leads to one address, whatever host is asked for."""

    backend: tuple[str, int]
    authorization: str | None = None
    lines: list[str] = field(default_factory=list)
    port: int = 0

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connection, args=(client,), daemon=True).start()

    def _connection(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            head = b""
            while b"\r\n\r\n" not in head:
                data = client.recv(65536)
                if not data:
                    return
                head += data
            head, _, rest = head.partition(b"\r\n\r\n")
            line, *headers = head.decode().split("\r\n")
            self.lines.append(line)
            sent = next((h.partition(": ")[2] for h in headers if h.startswith("Proxy-Authorization")), None)
            if self.authorization is not None and sent != self.authorization:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            with socket.create_connection(self.backend) as server:
                if line.startswith("CONNECT"):
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:  # one request only: a proxy that passes on what it is sent
                    method, url, version = line.split(" ")
                    target = url.split("/", 3)[3]
                    server.sendall("\r\n".join([f"{method} /{target} {version}", *headers]).encode())
                    server.sendall(b"\r\n\r\n" + rest)
                self._relay(client, server)

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for side in select.select([client, server], [], [])[0]:
                data = side.recv(65536)
                if not data:
                    return
                (server if side is client else client).sendall(data)


@contextlib.contextmanager
def fake_proxy(backend: tuple[str, int], *, authorization: str | None = None) -> Iterator[FakeProxy]:
    """A running FakeProxy; `lines` keeps the first line of each request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = FakeProxy(backend=backend, authorization=authorization, port=listener.getsockname()[1])
        threading.Thread(target=proxy.serve, args=(listener,), daemon=True).start()
        try:
            yield proxy
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which close() does not
