"""Images of a store: layers, pins, verdicts of signature policies, and the facts about an image."""

from __future__ import annotations

from msgspec import Struct, field

from bareboat_images.model.facts import CudaCompat, FabricLibrary, Linked, MpiFacts


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

    def __str__(self) -> str:
        name = f" ({self.name})" if self.name else ""
        if self.verified:
            return f"signed by {self.key}{name}" + (f" as {self.signed_as}" if self.signed_as else "")
        return f"claims to be signed by {self.key or 'a key'}{name}, which is not verified"


class Trust(Struct, frozen=True, kw_only=True):
    """The verdict of a signature policy. `state`: signed, which was verified; claimed, by a file with
    signatures whose keys are unknown; unsigned, for a file that could carry signatures; unchecked, where the
    policy requires none. `rules`: a digest of the requirements and keys behind the
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


class Image(Struct, frozen=True, kw_only=True):
    """An image in the store and the facts about its content. `built`: the command that built it here. `cuda`,
    `rocm`: the newest in it. `mpis`: in the order in which its programs find them. `mpi_users`: Python
    packages that use MPI -> the libraries that they are linked to. `fabrics`: its libraries for fast
    networks, `compiler`: whether its PATH has a C compiler; None: unknown. `gpu_code`: frameworks -> what
    their kernels are built for. `program`: of the job that is planned, not stored; None: unknown, or nothing
    to report."""

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
    built: str = ""
    gpu_code: dict[str, tuple[str, ...]] = field(default_factory=dict)
    program: Linked | None = None

    @property
    def size_bytes(self) -> int:
        return sum(layer.size_bytes for layer in self.layers)

    @property
    def inodes(self) -> int:
        return sum(layer.inodes for layer in self.layers)
