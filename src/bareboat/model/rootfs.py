"""The trees of an image on this machine, as jobs use them."""

from __future__ import annotations

from msgspec import Struct, field

from bareboat_base.host_files import Mount


class HostMpiTree(Struct, frozen=True, kw_only=True):
    """A host's MPI prepared for one image. `folder`: the links to it; `over`: files of the host that are
    mounted over the image's own of the same name; `left_out`: libraries for which the image's own are
    used."""

    folder: str
    over: tuple[Mount, ...] = ()
    left_out: tuple[str, ...] = ()


class ScratchEntry(Struct, frozen=True, kw_only=True):
    """Something that an image has where a container gets a directory to write to. `leads_to`: its path in the
    image once links are followed."""

    path: str
    leads_to: str
    is_folder: bool


class OwnTree(Struct, frozen=True, kw_only=True):
    """A tree with the mount points of one job (`path`). `bound`: directories of it, by their paths without
    the first slash, that are mounted from the image's flat tree; None: it is the whole image."""

    path: str
    bound: tuple[str, ...] | None = None


class Rootfs(Struct, frozen=True, kw_only=True):
    """The location of an image on this machine: layer digest -> unpacked tree, bottom first, and the path of
    its flat tree; `relinked`: the same with relative links; `packed`: kind of file -> its path. `identity`: a
    directory with etc/passwd and etc/group that list the user, where the image's own do not. `in_scratch`:
    its content in directories that become scratch. `absolute`: absolute links are on the way to what
    every container mounts. `drivers`: vendor of a GPU driver of the site -> the
    directory of links to its files. `host_mpis`: library of a host's MPI -> that MPI, prepared for this
    image.
    `kernel_caches`: the directory in the user's own store for compiled GPU kernels. `exposed`: the job's
    writable mounts that show the store: source -> its path in the store, "." for a source in the store.
    `targets`: of the job's mounts, where a link of the image is on the way -> the path without links.
    `points`: a directory with mount points that the layers lack, to stack on them.
    `own`: the tree that replaces the flat one, where the job needs mount points that the image lacks."""

    layers: dict[str, str]
    flat: str
    packed: dict[str, str] = field(default_factory=dict)
    identity: str | None = None
    targets: dict[str, str] = field(default_factory=dict)
    points: str | None = None
    drivers: dict[str, str] = field(default_factory=dict)
    relinked: str = ""
    in_scratch: tuple[ScratchEntry, ...] = ()
    absolute: bool = False
    host_mpis: dict[str, HostMpiTree] = field(default_factory=dict)
    kernel_caches: str = ""
    exposed: dict[str, str] = field(default_factory=dict)
    own: OwnTree | None = None
