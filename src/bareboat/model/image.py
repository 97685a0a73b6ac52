"""The image: the content of the container, and its location."""

from __future__ import annotations

from msgspec import Struct, field

from bareboat.model.fabric import FabricLibrary
from bareboat.model.mpi import HostMpiTree, MpiFacts


class Layer(Struct, frozen=True, kw_only=True):
    """One layer: the digest of its uncompressed tar, and what it costs on disk."""

    diff_id: str
    size_bytes: int
    unpacked_bytes: int
    inodes: int
    comment: str = ""
    stackable: bool = True


class StoredLayer(Struct, frozen=True, kw_only=True):
    """Facts about a layer from its unpacking; stored with the layer's tree.

    `stackable`: overlayfs can use the tree as it is. `rebuildable`: the layer's tar can be written again,
    bit for bit, from the tree and its recipe.
    """

    diff_id: str
    size_bytes: int
    unpacked_bytes: int
    inodes: int
    stackable: bool = True
    rebuildable: bool = True
    notes: tuple[str, ...] = ()


class StoredCapture(Struct, frozen=True, kw_only=True):
    """The image of a captured environment. `outside`: path -> state of what its files need from elsewhere and
    of the directories of LD_LIBRARY_PATH; if one has changed, so may the image."""

    digest: str
    outside: dict[str, str] = field(default_factory=dict)


class Signer(Struct, frozen=True, kw_only=True):
    """The signature of an image. `kind`: openpgp, sigstore, or pem (a SIF's, by a bare key). `key`: the key's
    fingerprint. `name`: a name or file of the key. `signed_as`: the name in the signature. `verified`: False
    where the key is unknown, so that the signature proves nothing."""

    kind: str
    key: str
    name: str = ""
    signed_as: str = ""
    verified: bool = True


class Trust(Struct, frozen=True, kw_only=True):
    """The verdict of a signature policy. `state`: signed; unsigned, for a file that could carry signatures;
    unchecked, where the policy requires none. `rules`: a digest of the requirements and keys behind the
    verdict."""

    state: str
    policy: str = ""
    scope: str = ""
    rules: str = ""
    signers: tuple[Signer, ...] = ()
    checked_at: str = ""


class Pin(Struct, frozen=True, kw_only=True):
    """What a reference referred to when it was pulled. `digest`: that of this architecture's manifest.

    `root` shows whether that has changed: the digest that the registry serves for the tag (of the index, if
    any), or the size and time of a file. `trust`: the verdict of the signature policy.
    """

    reference: str
    digest: str
    root: str
    pinned_at: str
    trust: Trust | None = None


class Process(Struct, frozen=True, kw_only=True):
    """The process that an image specifies (OCI image config). `workdir_missing`: the image names a directory
    that it does not contain; Docker creates it."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    workdir: str = "/"
    workdir_missing: bool = False
    user: str = ""


class Prefix(Struct, frozen=True, kw_only=True):
    """A directory of the image that must stay visible unchanged, whatever is mounted around it."""

    path: str
    layer: str


class SiteLayer(Struct, frozen=True, kw_only=True):
    """An image's extension for a site (bareboat.mpi.site_layer): `contents`, as NAME==VERSION, on the image
    with the digest `base`. `made`: it is in the store; `because`: why the job has it."""

    base: str
    contents: tuple[str, ...]
    made: bool = True
    because: str = ""


class CudaCompat(Struct, frozen=True, kw_only=True):
    """The forward-compatibility package (cuda-compat) of an image: in `folder`, the user-space half of the
    driver whose version is `driver`."""

    folder: str
    driver: str


class Linked(Struct, frozen=True, kw_only=True):
    """MPI facts from the files of a job's command. `program`: the one named in messages; `mpi`: the libraries
    that it is linked to; `unknown`: why it cannot be judged."""

    program: str
    mpi: tuple[str, ...] = ()
    unknown: str = ""


class Image(Struct, frozen=True, kw_only=True):
    """An image in the store and the facts about its content. `built`: the command that built it here. `cuda`,
    `rocm`: the newest in it. `mpis`: in the order in which its programs find them. `mpi_users`: Python
    packages that use MPI -> the libraries that they are linked to. `fabrics`: its libraries for fast
    networks, `compiler`: whether its PATH has a C compiler; None: unknown. `lacks`: Python packages -> a
    program that each starts and that is not on its PATH. `gpu_code`: frameworks -> what their kernels are
    built for. `program`: of the job that is planned, not stored; None: unknown, or nothing to report."""

    digest: str
    layers: tuple[Layer, ...]
    environment: dict[str, str] = field(default_factory=dict)
    python: str | None = None
    python_version: str | None = None
    glibc: str | None = None
    frameworks: dict[str, str] = field(default_factory=dict)
    prefixes: tuple[Prefix, ...] = ()
    unresolved_libraries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reference: str = ""
    architecture: str = ""
    process: Process = field(default_factory=Process)
    mpis: tuple[MpiFacts, ...] = ()
    mpi_users: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cuda: str | None = None
    rocm: str | None = None
    cuda_compat: CudaCompat | None = None
    site_layer: SiteLayer | None = None
    fabrics: tuple[FabricLibrary, ...] | None = None
    compiler: bool | None = None
    lacks: dict[str, str] = field(default_factory=dict)
    built: str = ""
    gpu_code: dict[str, tuple[str, ...]] = field(default_factory=dict)
    program: Linked | None = None

    @property
    def size_bytes(self) -> int:
        return sum(layer.size_bytes for layer in self.layers)

    @property
    def inodes(self) -> int:
        return sum(layer.inodes for layer in self.layers)


class PackedFile(Struct, frozen=True, kw_only=True):
    """An image packed into one file, with these facts stored next to it. `sha256`: of the file, in
    hexadecimal. `places`: mount points created in it -> whether it is a directory."""

    kind: str
    size_bytes: int
    sha256: str
    places: dict[str, bool]


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
    image. `exposed`: the job's writable mounts that show the store: source -> its path in the store, "." for
    a source in the store. `own`: the tree that replaces the flat one, where the job needs mount points
    that the image lacks."""

    layers: dict[str, str]
    flat: str
    packed: dict[str, str] = field(default_factory=dict)
    identity: str | None = None
    drivers: dict[str, str] = field(default_factory=dict)
    relinked: str = ""
    in_scratch: tuple[ScratchEntry, ...] = ()
    absolute: bool = False
    host_mpis: dict[str, HostMpiTree] = field(default_factory=dict)
    exposed: dict[str, str] = field(default_factory=dict)
    own: OwnTree | None = None
