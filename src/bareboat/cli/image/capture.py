"""bareboat image capture: store the active environment as an OCI image."""

from __future__ import annotations

import argparse
import os

from bareboat.cli import console
from bareboat.cli.common import Context, add_common, add_dry_run, add_key
from bareboat.model import CaptureRequest, Image
from bareboat.session import preparation
from bareboat_base import digests, execute
from bareboat_base.errors import UsageError
from bareboat_base.files import outputs, untrusted
from bareboat_base.printable import quoted

EXAMPLE = "bareboat image capture --name digits --save digits.tar\n  podman load -i digits.tar"


def add(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    add_key(parser, "capture.python")
    parser.add_argument(
        "--include",
        metavar="PATH",
        action="append",
        default=[],
        help="include this file or directory (repeatable)",
    )
    parser.add_argument(
        "--compiler",
        action="store_true",
        help="include this machine's C and C++ compilers, e.g. for torch.compile or Triton",
    )
    parser.add_argument(
        "--program",
        metavar="NAME",
        action="append",
        help="a program of this machine to add, such as git or ffmpeg (repeatable)",
    )
    parser.add_argument("--name", metavar="NAME[:TAG]", help="name of the image in the store")
    parser.add_argument("--save", metavar="FILE", help="also write an OCI archive for other tools")
    parser.add_argument("--fresh", action="store_true", help="read all files again, even unchanged ones")
    add_dry_run(parser)


def run(context: Context) -> int:
    from bareboat_images.transfer import export

    options = context.options
    _check(options)
    request = CaptureRequest(
        python=options.python,
        include=tuple(os.path.abspath(path) for path in options.include),
        compiler=options.compiler or None,
        programs=None if options.program is None else tuple(options.program),
    )
    if options.name is not None:
        context.store.check_name(options.name, flag="--name")
    save = outputs.check_new(options.save, flag="--save")
    if options.dry_run:
        return _dry_run(context, request)
    image, made = preparation.capture(context.session, request, fresh=options.fresh)
    if options.name:
        context.store.name_image(options.name, image.digest)
    if save is not None:
        outputs.check_room(save, image.size_bytes)
        context.progress.say(f"writing {save}")
        export.save_archive(context.store, image, save, name=options.name or "capture")
        context.progress.end()
    if options.json:
        console.result_json(image)
    else:
        console.result(_text(image, made=made, saved=options.save))
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for paths and programs that do not exist, in the words of their flags."""
    for path in options.include:
        try:
            os.stat(path)
        except OSError as error:
            raise untrusted.unreadable(path, error, flag="--include") from None
        if os.path.isdir(path) and os.access(path, os.R_OK) and not os.listdir(path):
            raise UsageError(f"--include {quoted(path)} is an empty directory", remedy="remove --include")
    for program in options.program or ():
        if execute.which(program) is None:
            raise UsageError(
                f"--program {quoted(program)} is not installed on this machine",
                remedy="remove --program, or install the program first",
            )


def _dry_run(context: Context, request: CaptureRequest) -> int:
    from bareboat import captures as capture

    found = capture.inventory(request)
    if context.options.json:
        console.result_json(
            {
                "python": found.interpreter.executable,
                "bytes": found.size_bytes,
                "inodes": found.inodes,
                "unresolved_libraries": found.unresolved,
                "left_out": found.collection.left_out,
            }
        )
    else:
        console.result(
            f"would capture {found.interpreter.executable} (Python {found.interpreter.version}): "
            f"{found.size_bytes / 1e6:,.0f} MB, {found.inodes:,} files and directories, "
            f"into {context.store.root}"
        )
    return 0


def _text(image: Image, *, made: bool, saved: str | None) -> str:
    lines = [
        console.bold(image.digest),
        f"  {'captured' if made else 'unchanged since the last capture'}: Python {image.python_version}, "
        f"glibc {image.glibc}, {image.size_bytes / 1e6:,.0f} MB, {image.inodes:,} files and directories",
    ]
    for layer in image.layers:
        lines.append(
            f"  {layer.comment:<9} {digests.short(layer.diff_id)}  "
            f"{layer.size_bytes / 1e6:8,.1f} MB  {layer.inodes:7,} files"
        )
    if image.frameworks:
        lines.append("  " + ", ".join(f"{name} {version}" for name, version in image.frameworks.items()))
    if image.unresolved_libraries:
        lines.append(f"  libraries not found on this machine:  {', '.join(image.unresolved_libraries)}")
    lines += [f"  not included:  {text}" for text in image.notes]
    if saved:
        lines.append(f"  wrote {saved}")
    return "\n".join(lines)
