"""Containers in the foreground: a command in an image in the place of the caller, without a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET

from bareboat import registry
from bareboat.api import boundary, opened
from bareboat.api.boundary import translated
from bareboat.api.instances import Instance
from bareboat.engines import (
    FILTERS,
    KERNEL,
    UPPER,
    Enclosure,
    Engine,
    Foreground,
    Guard,
    Seccomp,
    command_environment,
    store_guard,
)
from bareboat.engines import Container as Contents
from bareboat.model import Command, Handing, IfSet, Mount, Opened, Rootfs
from bareboat.session import containers
from bareboat_base import foreground, seccomp
from bareboat_base.errors import BareboatError, PlanError, ToolError, UsageError
from bareboat_base.files.root import Root
from bareboat_base.paths import lies_in

if TYPE_CHECKING:
    from bareboat.model import GpuDriver
    from bareboat_images.layers.view import View

_NAMESPACES = ("pid", "ipc", "uts", "net")
#: apt would change to a user of its own, and check the result.
_APT = "/etc/apt/apt.conf.d/99bareboat"


class User(NamedTuple):
    """A user in a container. `name`, `home`: for an image that has no user with this ID."""

    uid: int
    gid: int
    name: str
    home: str


class Prepared(NamedTuple):
    """An image in the store. `name`: for `Container` on each machine that sees the directory `store`;
    `environment`: the variables that it sets."""

    name: str
    store: str
    environment: Mapping[str, str]


@translated()
def store() -> str:
    """The directory of the store that `prepare` uses."""
    return str(opened.session(looks=True).store.root)


@translated()
def prepare(image: str | os.PathLike[str], *, plain_http: str = "") -> Prepared:
    """Pull and unpack an image for containers on other machines; `image` and `plain_http` as for
    `Container`."""
    session = opened.session(plain_http=plain_http)
    text = containers.check_image(boundary.path("image", image))
    content, tree = containers.tree(session, text)
    return Prepared(content.digest or tree, str(session.store.root), content.environment)


class Container:
    """An image in which commands run in the foreground: with this process's terminal, signals and process
    group. There is no job script, run directory or record.

    `image`: a name in the store, a reference, a file, a directory, which is used in place, or an instance,
    which keeps changes. `mounts`: an inner one after the one around it; `empty`: directories in memory;
    `home`: what programs take for the home directory; `namespaces`: further ones (pid, ipc, uts, net); `gpu`:
    the vendor whose driver is mounted where the machine has it; `plain_http`: the registries without TLS.
    """

    @translated()
    def __init__(
        self,
        image: str | os.PathLike[str] | Instance,
        *,
        mounts: Sequence[Mount] = (),
        empty: Sequence[str] = (),
        home: str | None = None,
        namespaces: Sequence[str] = (),
        gpu: str | None = None,
        plain_http: str = "",
    ) -> None:
        self._mounts = tuple(boundary.several("mounts", mounts, Mount))
        self._empty = tuple(boundary.several("empty", empty, str))
        self._namespaces = tuple(boundary.several("namespaces", namespaces, str))
        if unknown := sorted(set(self._namespaces) - set(_NAMESPACES)):
            raise UsageError(
                f"no namespace is called {unknown[0]!r}", remedy=f"use one of: {', '.join(_NAMESPACES)}"
            )
        self._session = opened.session(plain_http=plain_http)
        self._keeps = isinstance(image, Instance)
        if isinstance(image, Instance):
            containers.check_kept(self._session, image.image)
            self._image, self.tree = image.image, image.tree
            if image.id != image.tree:
                os.utime(os.path.dirname(image.tree))  # the age by which unused ones are removed
        else:
            text = containers.check_image(boundary.path("image", image))
            self._image, self.tree = containers.tree(self._session, text)
        self._site = containers.site(self._session)
        self._engine, self._enclosure = self._chosen()
        self._layers: tuple[str, ...] = (self.tree,)
        self._changes: str | None = None
        self._home = self._site.home if home is None else boundary.path("home", home)
        self._driver = None if gpu is None else self._gpu_driver(gpu)

    @translated()
    def lay_over(self, overlays: Sequence[str], changes: str | None) -> None:
        """Add directories with an `upper` each, whose files are above the image's, bottom first; and above
        them `changes`, one that keeps changes."""
        self._layers = (self.tree, *(f"{each}/{UPPER}" for each in overlays))
        self._changes = changes
        for name in (UPPER, "work") if changes is not None else ():
            os.makedirs(f"{changes}/{name}", exist_ok=True)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that the image sets."""
        return self._image.environment

    @property
    def entrypoint(self) -> tuple[str, ...]:
        return self._image.process.entrypoint

    @property
    def default_command(self) -> tuple[str, ...]:
        return self._image.process.command

    @property
    def workdir(self) -> str:
        """The working directory that the image sets."""
        return self._image.process.workdir

    @property
    def sets_workdir(self) -> bool:
        """Whether the image sets a working directory; False where its configuration is not in the store."""
        try:
            config = self._session.store.read_config(self._image).config
        except BareboatError:
            return False
        return config is not None and bool(config.working_dir)

    @property
    def user(self) -> str:
        """The user that the image sets, by name or ID; "" for none."""
        return self._image.process.user

    @property
    def timezone(self) -> str:
        """This machine's, or ""."""
        return self._site.timezone

    @property
    def has_gpu_driver(self) -> bool:
        return self._driver is not None

    def place(self, path: str) -> str | None:
        """Where a file or directory of the container lies on this machine; None where the container has none,
        or it is in memory."""
        path = os.path.normpath(boundary.path("path", path))
        around = [mount for mount in self._mounts if lies_in(path, mount.target)]
        mount = max(around, key=lambda each: len(each.target), default=None)
        depth = -1 if mount is None else len(mount.target)
        if any(len(each) > depth and lies_in(path, each) for each in self._empty):
            return None
        if mount is None:
            return self._of_layers(path)
        source = mount.source.rstrip("/") + path[len(mount.target.rstrip("/")) :]
        return source if os.path.lexists(source) else None

    def _of_layers(self, path: str) -> str | None:
        if self._changes is None and len(self._layers) == 1:
            return Root(self.tree).real(path)
        found = self._view().find(path)
        return None if found is None else found.node.places[0]

    def _view(self) -> View:
        from bareboat_images.layers.view import View

        changes = () if self._changes is None else (f"{self._changes}/{UPPER}",)
        return View([Path(each) for each in (*self._layers, *changes)])

    def is_directory(self, path: str) -> bool:
        """Whether the container has a directory at this path."""
        path = os.path.normpath(boundary.path("path", path))
        points = (*(mount.target for mount in self._mounts), *self._empty, *KERNEL)
        place = self.place(path)
        return any(lies_in(point, path) for point in points) or (place is not None and os.path.isdir(place))

    def program(self, name: str, path: str, workdir: str = "/") -> str | None:
        """The file that a command of this name starts with this PATH; None where there is none. It may lack
        the permission. The GPU driver's programs are first on PATH."""
        for file in self._driver.programs if self._driver is not None else ():
            if file.name == name:
                return file.path
        names = (
            [os.path.join(workdir, name)] if "/" in name else [f"{each}/{name}" for each in path.split(":")]
        )
        files = (self.place(each) for each in names)
        return next((each for each in files if each is not None and os.path.isfile(each)), None)

    @translated()
    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        workdir: str = "/",
        writable: bool = False,
        user: User | None = None,
    ) -> int:
        """Run a command to its end; return its exit code, -N for signal N. `environment`: all that it gets,
        besides the GPU driver's; `writable`: changes to the root file system are allowed, and discarded
        unless the image is an instance; `user`: in the container, who has your rights; with ID 0 also those
        of root over your files; `workdir`: it is created if the image lacks it."""
        words = tuple(boundary.several("command", command))
        ids = None if user is None else boundary.one("user", user, User)[:2]
        is_writable = writable or self._changes is not None
        front = Foreground(foreground.REPORT, self._namespaces, is_writable, ids, self._changes)
        contents = self._contents(front, user, workdir)
        wrapped = self._wrapped(words, environment, workdir, contents)
        with _described(wrapped) as (argv, descriptors):
            try:
                return foreground.run(
                    argv,
                    environment={"PATH": os.environ.get("PATH", os.defpath)},
                    descriptors=descriptors,
                    own_init="pid" in self._namespaces,
                )
            except ToolError:
                containers.forget(self._session)  # its facts may be the reason
                raise

    def _chosen(self) -> tuple[Engine, Enclosure]:
        refusals = []
        for facts in self._site.engines:
            engine = registry.engine(facts.name)
            judged = engine.judge(self._site, self._image) if engine.FOREGROUND else None
            if isinstance(judged, Enclosure):
                return engine, judged
            refusals += [judged] if judged is not None else []
        raise PlanError(
            "no engine runs commands in the foreground here",
            context="; ".join(each.reason for each in refusals),
            remedy=next((each.remedy for each in refusals if each.remedy), "bareboat doctor"),
        )

    def _gpu_driver(self, vendor: str) -> GpuDriver | None:
        """The machine's driver of this vendor as it is now: an update may have replaced the one of the kept
        facts."""
        from bareboat.gpu import find

        drivers = find.find(environment=os.environ)
        self._site = msgspec.structs.replace(self._site, gpu_drivers=drivers)
        return next((each for each in drivers if each.vendor == vendor), None)

    def _contents(self, front: Foreground, user: User | None, workdir: str) -> Contents:
        is_root = user is not None and user.uid == 0
        keeps = self._keeps and front.writable
        contents = Contents(
            layers=() if keeps else self._layers,
            flat=self.tree if keeps else None,
            identity=self._identity(user),
            scratch=self._empty,
            mounts=self._all_mounts(is_root=is_root),
            missing=() if self.is_directory(workdir) else (workdir,),
            home=self._home if user is None else user.home,
            driver=self._driver,
            guard=self._guard(is_root=is_root),
            foreground=front,
        )
        return self._with_points(contents)

    def _with_points(self, contents: Contents) -> Contents:
        """With the mount points that the image lacks."""
        from bareboat.deployment import points
        from bareboat_images.layers.places import make_mount_points

        view = self._view()
        mounted = points.find(view, contents)
        layers = contents.layers
        if contents.flat is not None:
            make_mount_points(Path(self.tree), mounted.lacking)
        elif (added := points.layer(self._session.store, view, mounted.lacking)) is not None:
            layers = (*layers, added)
        mounts = tuple(sorted(contents.mounts, key=lambda mount: mounted.real[mount.target].split("/")))
        return msgspec.structs.replace(contents, layers=layers, mounts=mounts, real=mounted.real)

    def _identity(self, user: User | None) -> str | None:
        from bareboat.deployment import identity

        view = self._view()
        if user is None:
            return identity.provide_for(self._session.store, view, self._site)
        if identity.has_user(view, user.uid):
            return None
        site = msgspec.structs.replace(self._site, user=user.name, uid=user.uid, gid=user.gid, home=user.home)
        return identity.provide_for(self._session.store, view, site)

    def _wrapped(
        self, words: tuple[str, ...], environment: Mapping[str, str], workdir: str, contents: Contents
    ) -> Command:
        variables = boundary.variables("environment", environment)
        if self._driver is not None:
            from bareboat.gpu import inject

            variables = inject.environment(variables, self._driver, self._image.cuda_compat)
        wrapped = self._enclosure.wrap(Command(argv=words, environment=variables, workdir=workdir), contents)
        if contents.guard is None:
            return wrapped
        return msgspec.structs.replace(wrapped, argv=contents.guard.start(wrapped.argv, seccomp.Mode.KEYS))

    def _all_mounts(self, *, is_root: bool) -> tuple[Mount, ...]:
        """The mounts, those of the GPU driver, and those that protect the store."""
        from bareboat.deployment import exposed

        mounts = list(self._mounts)
        if is_root and Root(self.tree).is_folder(os.path.dirname(_APT)):
            from bareboat.deployment import identity

            mounts.append(Mount(source=identity.apt_settings(self._session.store), target=_APT))
        if self._driver is not None:
            from bareboat.deployment.present import driver_links
            from bareboat.gpu import inject

            links = driver_links(self._session.store, self._site)
            mounts += inject.mounts(self._driver, links.get(self._driver.vendor, ""))
        store, written = self._session.store, [mount.source for mount in mounts if mount.writable]
        shown = exposed.find(store.root, written)
        if store.own != store.root:
            shown |= exposed.find(store.own, written)
        rootfs = Rootfs(layers={}, flat=self.tree, exposed=shown)
        mounts += store_guard.guards(mounts, rootfs, self._engine)[0]
        return tuple(mounts)

    def _guard(self, *, is_root: bool) -> Guard | None:
        folder = self._site.other_tools.get(FILTERS)
        if folder is None or self._engine.SECCOMP is not Seccomp.FULL:
            return None
        return Guard(folder, full=True, root=is_root)


@contextlib.contextmanager
def _described(command: Command) -> Iterator[tuple[list[str], dict[int, int]]]:
    """The words of a foreground command as text, and the descriptors that its engine reads, by number."""
    if command.sealed is UNSET or command.sealed.by is not Handing.DESCRIPTOR:
        raise PlanError("the engine takes no values by a descriptor", remedy="bareboat run")
    with contextlib.ExitStack() as stack:
        data = os.memfd_create("bareboat-environment", os.MFD_CLOEXEC)
        stack.callback(os.close, data)
        sealed = command.sealed
        for name, value in zip(sealed.names, sealed.values, strict=True):
            entry = {"name": name, "value": value}
            words = [each if isinstance(each, str) else entry[each.name] for each in sealed.form]
            os.write(data, b"".join(os.fsencode(str(word)) + b"\0" for word in words))
        os.lseek(data, 0, os.SEEK_SET)
        number = foreground.REPORT + 1
        descriptors, argv = {number: data}, []
        for word in command.argv:
            if isinstance(word, str):
                argv.append(word)
            elif word == command_environment.DESCRIPTOR:
                argv.append(str(number))
            elif isinstance(word, Opened):
                descriptors[word.number] = os.open(word.path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, descriptors[word.number])
            elif not isinstance(word, IfSet):  # a run's directories and variables are set for jobs only
                raise PlanError(f"{word!r} is known only in a job", remedy="bareboat run")
        yield argv, descriptors
