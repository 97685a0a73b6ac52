"""What a job's command starts, looked up before the job starts."""

from __future__ import annotations

from bareboat import registry
from bareboat.engines import STARTERS
from bareboat.images.inside.command import MISSING, Fault, Program, Sight, resolve
from bareboat.model import Executable, Image, Job, Site
from bareboat.plan import sweep
from bareboat.plan.process import command_of, image_workdir
from bareboat.store import Store

#: What a container shows there is known at the start only.
_AT_START = ("/dev", "/proc", "/run", "/sys")


def look(store: Store, image: Image, site: Site, job: Job) -> Executable | None:
    """What the job's command starts, looked up beforehand; None where nothing can be said. `site`: a machine
    that the job runs on."""
    argv = command_of(job, image)
    if not argv or not argv[0]:
        return None
    word = sweep.words(argv, len(job.command), job)[0]
    environment = sweep.fixed_environment(job)
    path = environment.get("PATH", image.environment.get("PATH", ""))
    is_path_known = "PATH" in environment or "PATH" not in job.environment  # a sweep's points may differ
    workdir = image_workdir(image) if job.workdir is None else job.workdir
    contains = registry.contains(job.engine)
    sight = sight_of(store, image, job)
    if sight is None:
        return None
    lacks = tuple(each for each in STARTERS if contains and sight.find(each) is None)
    unknown = Executable(word=argv[0], known=False, lacks=lacks)
    if not isinstance(word, str) or not (is_path_known or "/" in word):
        return unknown
    machine = site.architecture
    found = resolve(word, sight, path=path, workdir=workdir, machine=machine)
    match found:
        case None:
            return unknown
        case Fault(code=code, remedy=remedy):
            if contains and image.digest and job.image == "capture" and code == MISSING:
                here = resolve(word, _of_machine(), path=path, workdir=workdir, machine=machine)
                if isinstance(here, Program):
                    remedy = f'set include = ["{here.place}"] under [capture]'
            return Executable(
                word=word,
                code=code,
                reason=found.reason,
                context=found.context,
                remedy=remedy,
                place=sight.source(found.at) or "",
            )
        case Program(mounted=True, place=place) if contains or "/" in word:
            return Executable(word=word, place=place, lacks=lacks)
        case _:
            return Executable(word=word, lacks=lacks)


def sight_of(store: Store, image: Image, job: Job) -> Sight | None:
    """The files among which the job's command is looked up; None where none are there to look at."""
    return _of_container(store, image, job) if registry.contains(job.engine) else _of_machine()


def _of_container(store: Store, image: Image, job: Job) -> Sight | None:
    """What a container shows; of a capture that is still to be made, this machine's files."""
    mounts = {mount.target: mount.source for mount in job.mounts}
    if job.workdir is not None:
        mounts.setdefault(job.workdir, job.workdir)
    if not image.digest:
        return Sight([], mounts={"/": "/", **mounts}, name="this machine")
    layers = [store.layer(layer.diff_id) for layer in image.layers]
    flat = store.flat(image.digest)
    tree = flat if flat.is_dir() else None
    if tree is None and not all(layer.is_dir() for layer in layers):
        return None
    return Sight(
        layers,
        tree=tree,
        mounts={**dict.fromkeys(_AT_START), **mounts},
        kept=[prefix.path for prefix in image.prefixes],
        name="the captured environment" if job.image == "capture" else job.image,
    )


def _of_machine() -> Sight:
    return Sight([], mounts={"/": "/"}, name="this machine")
