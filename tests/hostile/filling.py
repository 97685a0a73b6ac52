"""Do one thing again and again on a small file system with little room; print a line of JSON each time.

test_full_disk.py runs it in a mount namespace: `filling.py WHAT POINT OUTSIDE`, where POINT is the small file
system and OUTSIDE a directory on another one. The smallest free space with which it works is found first;
then it is tried with twenty amounts below that.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent)]

from archives import entry, oci_files, put  # noqa: E402
from builders import make_image, make_job, make_site  # noqa: E402
from images import noise, pack, tar  # noqa: E402

from bareboat.model import Image, Matrix, ProveRequest, SchedulerFacts, Topology  # noqa: E402
from bareboat.plan import plan  # noqa: E402
from bareboat.runs import creation  # noqa: E402
from bareboat_base.errors import BareboatError  # noqa: E402
from bareboat_base.files import outputs  # noqa: E402
from bareboat_images.formats import flatten  # noqa: E402
from bareboat_images.oci import reference  # noqa: E402
from bareboat_images.registry.access import Access  # noqa: E402
from bareboat_images.store import Store  # noqa: E402
from bareboat_images.tar.limits import Limits  # noqa: E402
from bareboat_images.transfer import pull as obtain  # noqa: E402
from bareboat_images.transfer.options import PullOptions  # noqa: E402
from bareboat_images.transfer.push import push  # noqa: E402
from bareboat_study import matrix, studyfile  # noqa: E402

POINTS = 20
_BLOCK = 4096
_MOST_BYTES = 6 << 20


def put_layout(folder: Path) -> None:
    """An OCI layout with an image of two layers."""
    files = {f"data/{n}": noise(20_000 + 1000 * n, n) for n in range(12)}
    image = pack(tar({"data": None, **files}), tar({"more": noise(50_000, 99), "link": "more"}))
    put(folder, oci_files([image], [entry(image)]))


def pull(store: Store, layout: Path) -> Image:
    found = reference.parse(f"oci:{layout}", folder="/")
    access = Access.read(plain_http="", mirrors="", ca_file="", policy="", say=lambda _: None)
    return obtain.obtain(found, store, PullOptions(access=access, machine="x86_64", limits=Limits())).image


class Registry:
    """Takes what is sent. Satisfies push.Target."""

    def has_blob(self, _digest: str) -> bool:
        return False

    def upload(self, _digest: str, _size: int, chunks: Iterable[bytes]) -> None:
        for _ in chunks:
            pass

    def put_manifest(self, _reference: str, data: bytes, _media_type: str) -> str:
        return "sha256:" + hashlib.sha256(data).hexdigest()


def prepare(what: str, point: Path, outside: Path) -> Callable[[], object]:
    """What is there before, and what is tried."""
    Store.check_room = lambda *_, **__: None  # type: ignore[method-assign]  # as when the room goes later
    layout = outside / "layout"
    put_layout(layout)
    if what == "convert":
        store = Store(outside / "store")
        image = pull(store, layout)
        (point / "result").write_bytes(b"an older file")
        archived = [store.layer(layer.diff_id) for layer in image.layers]

        def convert() -> None:
            with store.guarded(), outputs.beside(outputs.check(point / "tree", is_folder=True)) as part:
                flatten.copy(archived, part)

        return convert
    store = Store(point / "store")
    if what == "pull":
        store.write(store.root / "names" / "older", b"sha256:" + b"0" * 64)
        return lambda: pull(store, layout)
    if what == "push":
        image = pull(store, layout)
        to = reference.parse("docker://registry.invalid/x:1", folder="/")
        return lambda: push(image, store, Registry(), to, source=lambda: None)
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    if what == "submit":
        job = make_job(scheduler="slurm", engine="native", workdir=str(outside))
        planned = plan(job, None, None, site)
        creation.submit(store, planned, site)
        return lambda: creation.submit(store, planned, site)
    request = ProveRequest(repeats=2)
    job = make_job(
        engine="native",
        command=("true",),
        workdir=str(outside),
        prove=request,
        launcher="single",
        topology=Topology(),
    )
    bare = plan(job, None, None, make_site())
    cells = [[(bare, make_image())] * 2]
    study = matrix.design(store, studyfile.study_of_job(job), cells, make_site())

    def conduct() -> Matrix:
        return matrix.conduct(store, study, say=lambda _: None, note=lambda _: None)

    conduct()
    for run in (1, 2):
        store.discard(store.run(study.point_id(0)) / f"{run:04d}")
    return conduct


@dataclass
class State:
    """What lies below a directory: path -> its content, or what it links to; None for a directory."""

    files: dict[str, bytes | str | None]

    @classmethod
    def of(cls, top: Path) -> "State":
        files: dict[str, bytes | str | None] = {}
        for path in sorted(top.rglob("*")):
            if path.is_symlink():
                files[str(path)] = os.readlink(path)
            else:
                files[str(path)] = None if path.is_dir() else path.read_bytes()
        return cls(files)

    def restore(self, top: Path) -> None:
        for path in sorted(top.rglob("*"), reverse=True):
            if str(path) not in self.files:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for name, content in self.files.items():
            if isinstance(content, bytes) and Path(name).read_bytes() != content:
                Path(name).write_bytes(content)


def attempt(act: Callable[[], object], point: Path, before: State, free_bytes: int) -> dict[str, object]:
    """Try it with so much free; what it said and what it left."""
    filler = point / "filler"
    state = os.statvfs(point)
    with filler.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, state.f_bavail * state.f_frsize - free_bytes)
    said: dict[str, object] = {"free": free_bytes, "message": None}
    try:
        act()
    except BareboatError as error:
        said |= {"message": error.message, "remedy": error.remedy, "code": error.code}
    filler.unlink()
    after = State.of(point)
    said["changed"] = [name for name, content in before.files.items() if after.files.get(name, 0) != content]
    said["new"] = [name.removeprefix(f"{point}/") for name in after.files if name not in before.files]
    before.restore(point)
    return said


def main() -> None:
    what, point, outside = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    act = prepare(what, point, outside)
    before = State.of(point)
    least, most = 0, _MOST_BYTES // _BLOCK  # in blocks; with `most` it works
    assert attempt(act, point, before, most * _BLOCK)["message"] is None
    while most - least > 1:
        middle = (least + most) // 2
        if attempt(act, point, before, middle * _BLOCK)["message"] is None:
            most = middle
        else:
            least = middle
    for number in range(POINTS):
        print(json.dumps(attempt(act, point, before, least * number // (POINTS - 1) * _BLOCK)), flush=True)


if __name__ == "__main__":
    main()
