"""bareboat image build: build an image from a Dockerfile."""

from __future__ import annotations

import argparse
import os
import shlex
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run, add_trust
from bareboat.cli.image.common import access, add_access
from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import counted, one_line, quoted

if TYPE_CHECKING:
    from bareboat_images.builder.options import Built, Options
    from bareboat_images.registry.access import Access

EXAMPLE = "bareboat image build -t myapp:1.0 ."

_NAMES = ("Dockerfile", "Containerfile")
#: Podman reads the first that exists.
_LARGEST_SECRET = 1 << 20
_LARGEST_BUNDLE = 4 << 20


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("context", metavar="CONTEXT", help="directory whose files COPY and ADD take")
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="Dockerfile or definition file (default: CONTEXT/Dockerfile)"
    )
    parser.add_argument(
        "-t",
        "--tag",
        metavar="NAME[:TAG]",
        action="append",
        default=[],
        help="name of the image in the store; several times for several names",
    )
    parser.add_argument(
        "--build-arg",
        metavar="NAME[=VALUE]",
        action="append",
        help="value of an ARG; without =VALUE, that of the environment variable",
    )
    parser.add_argument(
        "--matrix",
        metavar="NAME=VALUE,…",
        action="append",
        help="build an image for each value of an ARG; --tag NAME:{mpi} names them",
    )
    parser.add_argument("--target", metavar="STAGE", help="build this stage (default: the last)")
    parser.add_argument(
        "--secret",
        metavar="id=NAME,src=FILE",
        action="append",
        help="secret for RUN --mount=type=secret; env=NAME takes an environment variable",
    )
    parser.add_argument("--platform", metavar="OS/ARCH", help="must be this machine's: no emulation")
    parser.add_argument("--no-cache", action="store_true", help="run all steps again")
    parser.add_argument("--pull", action="store_true", help="ask registries for newer base images")
    _add_steps(parser)
    add_access(parser)
    add_trust(parser)
    add_dry_run(parser)


def _add_steps(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what RUN steps see."""
    parser.add_argument(
        "--network",
        choices=("default", "host", "none"),
        default="default",
        help="network of RUN: the host's, or none",
    )
    parser.add_argument(
        "--pip-index", metavar="URL", help="index from which pip and uv install in RUN; not in the image"
    )
    parser.add_argument(
        "--apt-mirror",
        metavar="[ARCHIVE=]URL",
        action="append",
        help="mirror that apt uses in RUN, below which are debian, ubuntu …; not in the image",
    )
    parser.add_argument(
        "--ca-bundle", metavar="FILE", help="certificates that programs trust in RUN; not in the image"
    )
    parser.add_argument(
        "--shell-on-error", action="store_true", help="open a shell in the tree of a RUN that fails"
    )


def run(context: Context) -> int:
    options, store = context.options, context.store
    for name in () if options.matrix else options.tag:
        store.check_name(name, flag="--tag")
    asked = _options(context)
    reach = access(context, "")
    if options.policy:
        from bareboat_images.signatures import policy

        policy.load(options.policy)
    if options.matrix:
        from bareboat.cli.image import matrix

        return matrix.run(context, asked, lambda variant: _build(context, variant, reach))
    if options.dry_run:
        return _show(context, asked)
    built = _build(context, asked, reach)
    image = built.image
    for name in options.tag:
        store.name_image(name, image.digest)
    if options.json:
        console.result_json(
            {
                "digest": image.digest,
                "name": options.tag[0] if options.tag else None,
                "names": options.tag,
                "layers": len(image.layers),
                "size_bytes": image.size_bytes,
                "steps": built.steps,
                "cached": built.cached,
                "warnings": list(built.warnings),
            }
        )
        return 0
    named = f"{', '.join(options.tag)}: " if options.tag else ""
    console.result(
        f"{console.bold(image.digest)}\n  {named}{counted(len(image.layers), 'layer')}, "
        f"{image.size_bytes / 1e6:,.0f} MB; {built.cached} of {built.steps} steps from the cache"
    )
    if not options.tag:
        context.progress.note("note: the image has no name; to give it one: --tag NAME")
    return 0


def _build(context: Context, asked: Options, reach: Access) -> Built:
    from bareboat.session import builds
    from bareboat_images.builder import solver

    options = context.options
    reporter = BuildProgress(
        context.progress, shows=not (options.quiet or options.no_progress), verbose=options.verbose
    )
    try:
        machine = builds.machine(context.session, reach, pull=options.pull)
        built = solver.build(context.store, asked, machine, reporter)
    finally:
        context.progress.end()
    for warning in built.warnings:
        context.progress.warn(f"warning: {warning}")
    return built


def _show(context: Context, asked: Options) -> int:
    """What would be built: the stages and their instructions, in order."""
    from bareboat_images.builder import solver

    recipe = solver.parse(asked, os.uname().machine)
    wanted = recipe.closure(recipe.target(asked.target))
    if context.options.json:
        console.result_json(
            [
                {
                    "stage": stage.title,
                    "base": stage.base,
                    "steps": [
                        {"line": step.line, "text": " ".join(step.text.split())} for step in stage.steps
                    ],
                }
                for stage in wanted
            ]
        )
        return 0
    for stage in wanted:
        console.result(f"{stage.title}: FROM {stage.base}")
        for step in stage.steps:
            console.result(f"  {step.line:>4}  {one_line(' '.join(step.text.split()), limit=160)}")
    for name in recipe.unused:
        context.progress.warn(f"warning: build argument {name} is not used: no ARG declares it")
    return 0


def _options(context: Context) -> Options:
    """The build that the command line asks for. Raises UsageError."""
    from msgspec.structs import replace

    from bareboat_images.builder.options import Options

    options = context.options
    folder = _folder(options.context)
    if options.file == "-":
        raise UsageError(
            "--file -: a Dockerfile from standard input is not supported",
            remedy="write it to a file: cat > Dockerfile, and give --file Dockerfile",
        )
    path = Path(options.file) if options.file is not None else _default(folder)
    return replace(
        Options.read(path, folder, flag="" if options.file is None else "--file"),
        arguments=dict(map(_argument, options.build_arg or ())),
        target=options.target,
        secrets=dict(map(_secret, options.secret or ())),
        network=options.network,
        apt_mirrors=_mirrors(options),
        pip_index=_index(options),
        certificates=_certificates(options),
        platform=options.platform or "",
        no_cache=options.no_cache,
        command=_command(options, path, folder),
        shell=options.shell_on_error and console.is_interactive(),
    ).dated(os.environ)


def _command(options: argparse.Namespace, path: Path, folder: Path) -> str:
    """What builds the image again, from any directory. Of a proxy only the name stays: it may hold a
    password, as the URL of an index or a mirror."""
    from bareboat.runs.repository import without_credentials
    from bareboat_images.recipe.stages import PROXIES

    words = ["bareboat", "image", "build", "--no-cache", "-f", str(path.absolute())]
    for flag, value in (("--target", options.target), ("--platform", options.platform)):
        words += [flag, value] if value else []
    if options.network != "default":
        words += ["--network", options.network]
    for text in options.build_arg or ():
        name = text.partition("=")[0]
        words += ["--build-arg", name if name in PROXIES else text]
    for text in options.secret or ():
        pairs = [(key, value) for key, _, value in (part.partition("=") for part in text.split(","))]
        paths = ("src", "source")
        given = [f"{key}={os.path.abspath(value) if key in paths else value}" for key, value in pairs]
        words += ["--secret", ",".join(given)]
    mirrors = ["=".join(map(without_credentials, text.split("="))) for text in options.apt_mirror or ()]
    words += [word for text in mirrors for word in ("--apt-mirror", text)]
    words += ["--pip-index", without_credentials(options.pip_index)] if options.pip_index else []
    words += ["--ca-bundle", os.path.abspath(options.ca_bundle)] if options.ca_bundle else []
    return shlex.join([*words, str(folder)])


def _folder(text: str) -> Path:
    """The context's directory. Raises UsageError."""
    if text.startswith(("http://", "https://", "git@", "git://")):
        raise UsageError(
            f"the context {quoted(text)} is a URL, which is not supported",
            remedy="git clone it, and give the directory",
        )
    if not text or "\0" in text or not os.path.isdir(text):
        found = "is not a directory" if text and "\0" not in text and os.path.exists(text) else "not found"
        raise UsageError(
            f"the context {quoted(text, limit=200)} {found}",
            remedy="bareboat image build .   # with this directory as the context",
        )
    folder = Path(os.path.realpath(text))
    if not os.access(folder, os.R_OK | os.X_OK):
        raise UsageError(f"the context {folder} cannot be read", remedy=f"ls -ld {shlex.quote(str(folder))}")
    return folder


def _default(folder: Path) -> Path:
    found = next((folder / name for name in _NAMES if os.path.lexists(folder / name)), None)
    if found is None:
        raise UsageError(f"no Dockerfile in {folder}", remedy="create one, or name it: --file FILE")
    return found


def _argument(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not name.replace("_", "a").isalnum() or "\0" in value:
        raise UsageError(f"--build-arg {quoted(text)} is not NAME=VALUE", remedy="--build-arg NAME=VALUE")
    if not equals:
        if name not in os.environ:
            raise UsageError(
                f"--build-arg {name}: the environment variable is not set", remedy=f"--build-arg {name}=VALUE"
            )
        value = os.environ[name]
    return name, value


def _pairs(text: str, keys: tuple[str, ...], example: str) -> dict[str, str]:
    found = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if key not in keys or not equals or not value or key in found:
            at = f" at {quoted(part)}" if part != text else ""
            raise UsageError(
                f"--secret {quoted(text)} is not id=NAME,src=FILE or id=NAME,env=VARIABLE{at}", remedy=example
            )
        found[key] = value
    return found


def _secret(text: str) -> tuple[str, bytes]:
    example = "--secret id=NAME,src=FILE   # or: --secret id=NAME,env=VARIABLE"
    found = _pairs(text, ("id", "src", "source", "env", "type"), example)
    name = found.get("id", "")
    path = found.get("src", found.get("source"))
    variable = found.get("env")
    if not name:
        raise UsageError(f"--secret {quoted(text)} has no id", remedy=example)
    if path is not None and variable is None:
        try:
            return name, untrusted.read_bytes(path, limit=_LARGEST_SECRET, follow=True)
        except OSError as error:
            raise untrusted.unreadable(path, error, flag="--secret") from None
        except ValueError:
            raise UsageError(f"--secret {quoted(text)} has no valid path", remedy=example) from None
    variable = variable or name
    if variable not in os.environ:
        raise UsageError(
            f"--secret {name}: the environment variable {quoted(variable)} is not set", remedy=example
        )
    return name, os.environb[os.fsencode(variable)]


def _mirrors(options: argparse.Namespace) -> dict[str, str]:
    mirrors = {}
    for text in options.apt_mirror or ():
        archive, _, mirror = text.rpartition("=http") if "=http" in text else ("", "", text)
        mirror = f"http{mirror}" if archive else mirror
        example = "--apt-mirror https://HOST   # or, for one archive: http://deb.debian.org/debian=https://HOST/debian"
        for each in filter(None, (archive, mirror)):
            _check_url("--apt-mirror", each, example)
        mirrors[archive] = mirror
    return mirrors


def _index(options: argparse.Namespace) -> str:
    if options.pip_index is not None:
        _check_url("--pip-index", options.pip_index, "--pip-index https://HOST/simple")
    return options.pip_index or ""


def _certificates(options: argparse.Namespace) -> bytes:
    if options.ca_bundle is None:
        return b""
    try:
        certificates = untrusted.read_bytes(options.ca_bundle, limit=_LARGEST_BUNDLE, follow=True)
    except OSError as error:
        raise untrusted.unreadable(options.ca_bundle, error, flag="--ca-bundle") from None
    except ValueError:
        raise UsageError(
            f"--ca-bundle {quoted(options.ca_bundle)} is not a path", remedy="--ca-bundle FILE"
        ) from None
    if b"-----BEGIN " not in certificates:
        raise UsageError(
            f"--ca-bundle {options.ca_bundle} has no certificate in PEM",
            remedy="--ca-bundle /etc/ssl/certs/ca-certificates.crt",
        )
    return certificates


def _check_url(flag: str, text: str, example: str) -> None:
    if not text.startswith(("http://", "https://")) or text.split() != [text] or not text.isprintable():
        raise UsageError(f"{flag} {quoted(text)} is not a URL", remedy=example)


_WIDTH = 79


class BuildProgress:
    """The progress of a build: one line for each step that is over, and on a terminal the last line that
    a step printed. Satisfies `images.build.options.Reporter`. `shows`: the steps; `verbose`: all output of
    RUN."""

    def __init__(self, progress: console.Progress, *, shows: bool, verbose: bool) -> None:
        self._progress = progress
        self._shows = shows
        self._verbose = verbose
        self._lock = threading.Lock()
        self._open: dict[str, bytes] = {}

    def begin(self, title: str, text: str) -> None:
        with self._lock:
            self._open[title] = b""
            if self._shows and console.is_live():
                self._progress.say(f"{title}  {one_line(text)}")

    def output(self, title: str, data: bytes) -> None:
        with self._lock:
            *lines, rest = (self._open.get(title, b"") + data).split(b"\n")
            self._open[title] = rest[-4096:]
            texts = [line.rpartition(b"\r")[2].decode(errors="replace") for line in lines]
            if self._verbose:
                for text in texts:
                    console.note(f"{title}  {text}")
            elif self._shows and console.is_live() and (last := [text for text in texts if text.strip()]):
                self._progress.say(f"{title}  {one_line(last[-1])}")

    def end(self, title: str, text: str, wall_s: float, *, cached: bool) -> None:
        with self._lock:
            rest = self._open.pop(title, b"")
            if self._verbose and rest:
                console.note(f"{title}  {rest.decode(errors='replace')}")
            if not self._shows:
                return
            how = "cached" if cached and wall_s else "" if cached else f"{wall_s:.1f} s"
            left = _WIDTH - len(title) - len(how) - 4
            self._progress.end()
            console.note(f"{title}  {one_line(text, limit=max(left, 20)):<{max(left, 20)}}  {how}".rstrip())

    def bytes(self, what: str, done: int, total: int) -> None:
        with self._lock:
            self._progress.bytes(what, done, total)

    def warn(self, text: str) -> None:
        with self._lock:
            self._progress.end()
            self._progress.warn(text)
