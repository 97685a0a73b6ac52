"""Rules that compare an image's C library and processor target with a site's."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator

from bareboat_base import architectures
from bareboat_base.expressions import expression
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.rule import Hit, Machine, Rule, Severity

#: Patterns of processor names -> x86-64 level, where the name determines it. The first match applies.
_PROCESSORS = (
    (r"EPYC \d{3}[45]|EPYC 9[A-Z]?\d{2}|Ryzen \w+ (?:[79]\d{3})|EPYC 8\d{2}4", 4),
    (r"EPYC \d|Ryzen \w+ \d", 3),
    (r"Xeon.*(?:Platinum|Gold|Silver|Bronze|Max|Phi)|Xeon.* W-[23]\d{3}", 4),
    (r"Xeon.*\bE[357]-\d{4}L? v[3456]\b|Xeon.*\bD-1[56]", 3),
    (r"Xeon.*\bE[357]-\d{4}L?(?: v2)?\b|Opteron.*6[23]\d{2}|Xeon.*\b[EXL]5[56]\d{2}\b", 2),
    (r"Core.*\bi[3579]-[4-9]\d{3}|Core.*\bi[3579]-1[0-4]\d{3}", 3),
)
#: Targets of compilers and of Spack -> the x86-64 level that their code requires.
_TARGETS = (
    (r"x86[-_]64[-_]v([234])", 0),
    (r"skylake[-_]avx512|cascadelake|cannonlake|icelake\w*|cooperlake|sapphirerapids|emeraldrapids|graniterapids"
     r"|znver[45]|zen[45]|knl|tigerlake|rocketlake", 4),
    (r"haswell|broadwell|skylake|alderlake|znver[123]|zen[123]?|core-avx2|excavator", 3),
    (r"nehalem|westmere|sandybridge|ivybridge|bulldozer|piledriver|steamroller|corei7(?:-avx)?"
     r"|silvermont", 2),
)  # fmt: skip
_MARCH = expression(
    r"-m(?:arch|cpu|tune)=(?P<target>[a-z0-9_.-]+)|-x(?P<intel>Host|CORE-AVX512|CORE-AVX2|MIC-AVX512)\b"
    r"|-m(?P<set>avx512\w*|avx2|amx-\w+)\b",
    re.IGNORECASE,
)
_SPACK = expression(r"\btarget=(?P<target>[a-z0-9_]+)")
_READ = ("/lib64/ld-linux-x86-64.so.2", "/bin/sh", "/usr/bin/env")
_MUSL = expression(r"(?:^|/)(?:alpine|.*-alpine|.*:.*alpine.*)(?:[:@].*)?$")
#: Notes of ELF files by which they require a level: x86-64 psABI, "Program Property"
#: (GNU_PROPERTY_X86_ISA_1_NEEDED).
_NOTE = 4
_PROPERTIES = 5
_ISA_NEEDED = 0xC0008002
_MOST_HEADERS, _MOST_NOTES, _LARGEST_NOTES = 256, 64, 1 << 16


def level_of(model: str) -> int:
    """The x86-64 level of a processor by its name; 0 if the name does not determine it."""
    plain = re.sub(r"\((?:R|TM)\)", "", model)
    return next((level for pattern, level in _PROCESSORS if re.search(pattern, plain)), 0)


def level_of_target(target: str) -> int:
    """The x86-64 level that code for a compiler's target requires; 0 if unknown."""
    for pattern, level in _TARGETS:
        found = re.fullmatch(pattern, target)
        if found:
            return level or int(found[1])
    return 0


def _flags(subject: RecipeSubject) -> Iterator[Hit]:
    here = _site_level(subject.site)
    for step in subject.steps:
        if step.name not in ("RUN", "ENV", "ARG"):
            continue
        text = step.instruction.text
        for pattern, match in ((each, match) for each in (_MARCH, _SPACK) for match in each.finditer(text)):
            if match[0].startswith("-mtune"):
                continue
            target = (match["target"] or "").lower()
            if target == "native" or (pattern is _MARCH and (match["intel"] or "").lower() == "host"):
                yield Hit(
                    message=f"{match[0]} compiles for the machine that builds the image",
                    line=step.line,
                    last=step.last,
                    remedy=f"-march=x86-64-v{here or 3}   # or the oldest processor that jobs run on",
                )
                continue
            needed = level_of_target(target)
            if pattern is _MARCH and not target:
                named = (match["intel"] or match["set"] or "").lower()
                needed = 4 if "512" in named or "amx" in named else 3
            if here and needed > here and subject.site is not None:
                yield Hit(
                    message=f"{match[0]} needs x86-64-v{needed}, and {subject.site.hostname} has "
                    f"{subject.site.cpu_model} (x86-64-v{here})",
                    line=step.line,
                    last=step.last,
                    severity=Severity.ERROR,
                    remedy=f"-march=x86-64-v{here}",
                )


def _site_level(site: Machine | None) -> int:
    return level_of(site.cpu_model) if site is not None and site.architecture == "x86_64" else 0


def _instructions(subject: ImageSubject) -> Iterator[Hit]:
    here = _site_level(subject.site)
    if not here or subject.site is None:
        return
    found: dict[str, int] = {}
    image = subject.image
    paths = [*_READ, image.python or "", *(mpi.library or "" for mpi in image.mpis)]
    paths += [fabric.path for fabric in image.fabrics or ()]
    for path in filter(None, dict.fromkeys(paths)):
        with subject.view.open(path) as descriptor:
            if descriptor is not None and (level := needed_level(descriptor)) > here:
                found[f"{path} needs x86-64-v{level}"] = 0
    for target, layer in subject.census.marked.get("target", ()):
        if (level := level_of_target(target)) > here:
            found[f"packages are compiled for {target}, which needs x86-64-v{level}"] = layer
    for text, layer in found.items():
        yield Hit(
            message=f"{text}; {subject.site.hostname} has {subject.site.cpu_model} (x86-64-v{here})",
            layer=layer,
        )


def needed_level(descriptor: int) -> int:
    """The x86-64 level, from 1, that an open ELF file requires by its notes; 0 if it states none. Nothing is
    raised for bad content; only 64-bit little-endian files are read."""
    try:
        return _level_of_file(descriptor)
    except (OSError, struct.error):
        return 0


def _level_of_file(descriptor: int) -> int:
    head = os.pread(descriptor, 64, 0)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return 0
    table, size, count = *struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54)
    if size < 56:
        return 0
    data = os.pread(descriptor, size * min(count, _MOST_HEADERS), table)
    found = 0
    for at in range(0, len(data) - size + 1, size):
        if struct.unpack_from("<I", data, at)[0] != _NOTE:
            continue
        offset = struct.unpack_from("<Q", data, at + 8)[0]
        length = min(struct.unpack_from("<Q", data, at + 32)[0], _LARGEST_NOTES)
        align = 8 if struct.unpack_from("<Q", data, at + 48)[0] == 8 else 4
        if offset > 1 << 40:
            continue
        found = max(found, _notes(os.pread(descriptor, length, offset), align))
    return found


def _notes(data: bytes, align: int) -> int:
    at = found = 0
    for _ in range(_MOST_NOTES):
        if at + 12 > len(data):
            break
        name_size, size, kind = struct.unpack_from("<III", data, at)
        begin = at + 12 + -(-name_size // 4) * 4
        content = data[begin : begin + size]
        is_gnu = data[at + 12 : at + 16] == b"GNU\0" and len(content) == size
        if is_gnu and kind == _PROPERTIES:
            found = max(found, _level_of_note(content))
        at = begin + -(-size // align) * align
    return found


def _level_of_note(content: bytes) -> int:
    at = 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, at)
        if kind == _ISA_NEEDED and size == 4 and at + 12 <= len(content):
            return min(int(struct.unpack_from("<I", content, at + 8)[0]).bit_length(), 4)
        at += 8 + -(-size // 8) * 8
    return 0


def _architecture(subject: ImageSubject) -> Iterator[Hit]:
    site, own = subject.site, subject.image.architecture
    if site is None or own in ("", "unknown"):
        return
    if architectures.oci(own) != architectures.oci(site.architecture):
        yield Hit(message=f"the image is for {own}, and {site.hostname} is {site.architecture}")


def _platform(subject: RecipeSubject) -> Iterator[Hit]:
    if subject.site is None:
        return
    for stage in subject.recipe.stages:
        wanted = stage.platform.removeprefix("linux/").partition("/")[0]
        if wanted and "$" not in wanted and wanted != architectures.oci(subject.site.architecture):
            yield Hit(
                message=f"--platform={stage.platform}, and {subject.site.hostname} is "
                f"{subject.site.architecture}",
                line=stage.start.line,
                last=stage.start.last,
            )


def _musl(subject: ImageSubject) -> Iterator[Hit]:
    if subject.image.glibc is None and subject.is_musl:
        yield Hit(message="the image's C library is musl")


def _musl_base(subject: RecipeSubject) -> Iterator[Hit]:
    for stage in subject.recipe.stages:
        ships = (
            any(step.stage is stage and step.ships for step in subject.steps)
            or stage is subject.recipe.stages[-1]
        )
        if ships and _MUSL.search(subject.base(stage)):
            yield Hit(
                message=f"{stage.base} has musl as its C library",
                line=stage.start.line,
                last=stage.start.last,
            )


RULES = (
    Rule(
        code="BB1306",
        title="The image's programs need processor instructions that the site's nodes lack.",
        why='They end with "Illegal instruction", some of them only in the middle of a job.',
        remedy="compile for the oldest processor of the site, for example with -march=x86-64-v3",
        recipe=_flags,
        image=_instructions,
        bad='FROM debian:12.7\nRUN make -C /opt/src CFLAGS="-O3 -march=native"\n',
        good='FROM debian:12.7\nRUN make -C /opt/src CFLAGS="-O3 -march=x86-64-v3"\n',
        site=True,
    ),
    Rule(
        code="BB1307",
        title="The image is for another architecture than the site's.",
        why="Nothing in it starts.",
        remedy="build or pull it for the site's architecture",
        severity=Severity.ERROR,
        recipe=_platform,
        image=_architecture,
        site=True,
    ),
    Rule(
        code="BB1308",
        title="The image's C library is musl.",
        why="GPU drivers, most Python wheels and a site's MPI need glibc.",
        remedy="use a Debian, Ubuntu, Rocky or UBI base image",
        recipe=_musl_base,
        image=_musl,
        bad="FROM alpine:3.20\n",
        good="FROM debian:12.7-slim\n",
    ),
)
