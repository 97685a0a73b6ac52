"""Several images from one Dockerfile, one for each combination of build arguments; and which of them the jobs
of this site would use."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.expressions import expression
from bareboat_base.printable import quoted

if TYPE_CHECKING:
    from bareboat.model import Image, Job, Site
    from bareboat.session import Session
    from bareboat_images.builder.options import Built, Options

_PLACE_TEXT = r"\{[A-Za-z_][A-Za-z0-9_]*\}"
_PLACE = expression(_PLACE_TEXT)
_PLACE_OR_NOT = expression(rf"{_PLACE_TEXT}|[^{{]+|\{{")
#: More variants than this are a mistake.
MOST = 64


class Variant(Struct, frozen=True, kw_only=True):
    """`values`: by the names of the matrix; `arguments`: the same by the names of the Dockerfile's ARGs."""

    values: Mapping[str, str]
    arguments: Mapping[str, str]
    tag: str

    @property
    def title(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items())


class Result(Struct, frozen=True, kw_only=True):
    """`built` or `error`. `start`: how this site would start its ranks, "" without an MPI; `starts`: whether
    it can."""

    variant: Variant
    built: Built | None = None
    error: BareboatError | None = None
    start: str = ""
    starts: bool = False


class Table(Struct, frozen=True, kw_only=True):
    """`chosen`: the variant that this site's jobs should use, None where nothing distinguishes them."""

    results: tuple[Result, ...]
    chosen: Result | None = None
    site: str = ""


def read(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """NAME=VALUE,VALUE of each --matrix. Raises UsageError."""
    found: dict[str, tuple[str, ...]] = {}
    example = "--matrix NAME=VALUE,VALUE   # such as mpi=openmpi-4.1.8,openmpi-5.0.11"
    for text in texts:
        name, equals, rest = text.partition("=")
        values = tuple(rest.split(","))
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"--matrix {quoted(text)} is not NAME=VALUE,VALUE", remedy=example)
        if name in found:
            raise UsageError(f"--matrix {name} is given twice", remedy=f"{example}   # all values in one")
        if "" in values or len(set(values)) < len(values):
            what = "an empty value" if "" in values else "a value twice"
            raise UsageError(f"--matrix {name} has {what}", remedy=example)
        if bad := next((each for each in values if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,100}", each)), None):
            raise UsageError(
                f"--matrix {name}: {quoted(bad)} cannot be part of an image's name",
                remedy="use letters, digits, '.', '_', '+' and '-'",
            )
        found[name] = values
    count = 1
    for values in found.values():
        count *= len(values)
    if count > MOST:
        raise UsageError(
            f"--matrix makes {count:,} variants, and at most {MOST} are built", remedy="remove some values"
        )
    return found


def plan(
    matrix: Mapping[str, tuple[str, ...]],
    tag: str | None,
    unused: Callable[[Mapping[str, str]], tuple[str, ...]],
) -> tuple[Variant, ...]:
    """The variants. `unused`: of build arguments, those that no ARG declares. Raises UsageError."""
    if tag is None:
        raise UsageError(
            "--matrix requires --tag", remedy="--tag " + "NAME:" + "-".join(f"{{{name}}}" for name in matrix)
        )
    several = [name for name, values in matrix.items() if len(values) > 1]
    if lacking := [name for name in several if f"{{{name}}}" not in tag]:
        raise UsageError(
            f"--tag {quoted(tag, limit=100)} gives several variants the same name",
            remedy=f"--tag {tag.partition(':')[0]}:" + "-".join(f"{{{name}}}" for name in lacking),
        )
    if unknown := next((n for n in re.findall(r"\{([^{}]*)\}", tag) if n not in matrix), None):
        raise UsageError(
            f"--tag {quoted(tag, limit=100)} names {quoted(unknown)}, which --matrix does not have",
            remedy=f"in the matrix: {', '.join(matrix)}",
        )
    names = {name: _argument(name, matrix[name][0], unused) for name in matrix}
    found = []
    for combination in itertools.product(*matrix.values()):
        values = dict(zip(matrix, combination, strict=True))
        arguments = {names[name]: value for name, value in values.items()}
        found.append(Variant(values=values, arguments=arguments, tag=_tag(tag, values)))
    return tuple(found)


def _argument(name: str, value: str, unused: Callable[[Mapping[str, str]], tuple[str, ...]]) -> str:
    """The ARG that the matrix sets: NAME as it is written, or in capitals."""
    for each in dict.fromkeys((name, name.upper())):
        if each not in unused({each: value}):
            return each
    raise UsageError(
        f"--matrix {name}: the Dockerfile declares neither ARG {name} nor ARG {name.upper()}",
        remedy=f"write ARG {name.upper()}={value} into the Dockerfile, and use it",
    )


def _tag(tag: str, values: Mapping[str, str]) -> str:
    made = tag
    for name, value in values.items():
        made = made.replace(f"{{{name}}}", value.replace("+", "-"))
    return made


def build(
    options: Options, variants: Sequence[Variant], make: Callable[[Options, Variant], Built]
) -> tuple[Result, ...]:
    """Build each; one that fails does not end the others. Steps without the values are shared."""
    results = []
    for each in variants:
        given = msgspec.structs.replace(options, arguments={**options.arguments, **each.arguments})
        try:
            results.append(Result(variant=each, built=make(given, each)))
        except BareboatError as error:
            results.append(Result(variant=each, error=error))
    return tuple(results)


def settle(session: Session, job: Job, site: Site, node: Site | None) -> Job:
    """The job with one image, where it names several: NAME:{mpi} is the stored variant that the site starts
    most directly. Raises UsageError where the store has none."""
    if not _PLACE.search(job.image):
        return job
    from bareboat.mpi.start_methods import Step, library_of
    from bareboat.project.recipes import target

    pattern = "".join(
        "[A-Za-z0-9_.-]+" if _PLACE.fullmatch(part) else re.escape(part)
        for part in _PLACE_OR_NOT.findall(job.image)
    )
    store = session.store
    names = sorted(name for name in store.names() if re.fullmatch(pattern, name))
    if not names:
        raise UsageError(
            f"the store has no variant of the image {job.image!r}",
            remedy=f"bareboat image build --matrix mpi=openmpi-4.1.8,openmpi-5.0.11 --tag {job.image} .",
            key="image",
        )
    where = target.TargetSite(title="this site", login=site, node=node or site, probed_node=node is not None)
    ranked = []
    for name in names:
        image = store.image(store.names()[name])
        taken = target.start(where, image)
        text = taken.choice if isinstance(taken, Step) else taken.reason
        ranked.append((target.preference(where, library_of(image), taken), name, text))
    _, name, text = min(ranked, key=lambda each: each[:2])
    session.reporter.note(f"image {name}, of {len(names)} variants: {text}")
    return msgspec.structs.replace(job, image=name)


def judge(session: Session, results: Sequence[Result]) -> Table:
    """How this site would start each variant's ranks, and which variant its jobs should use."""
    from bareboat.mpi.start_methods import Step, library_of
    from bareboat.project.recipes import target
    from bareboat.session.recipes import site_of

    if not any(each.built is not None and each.built.image.mpis for each in results):
        return Table(results=tuple(results))
    site = site_of(session, "here")
    judged, ranked = [], []
    for order, each in enumerate(results):
        image: Image | None = each.built.image if each.built is not None else None
        if image is None or not image.mpis:
            judged.append(each)
            continue
        taken = target.start(site, image)
        starts = isinstance(taken, Step)
        text = taken.choice if isinstance(taken, Step) else taken.reason
        judged.append(structs.replace(each, start=text, starts=starts))
        if starts:
            ranked.append(((*target.preference(site, library_of(image), taken), order), judged[-1]))
    images = [each.built.image for each in judged if each.built is not None]
    titles = {image.mpis[0].title for image in images if image.mpis}
    chosen = min(ranked, key=lambda pair: pair[0])[1] if ranked and len(titles) > 1 else None
    return Table(results=tuple(judged), chosen=chosen, site=site.title)
