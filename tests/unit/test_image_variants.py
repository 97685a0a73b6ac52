"""Variants of an image: the matrix of `image build`, and which variant a job of a site uses."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from builders import fake_digest, make_image
from recipe_sites import CRAY, HDR, OLD_GPUS, target

from bareboat.cli import console
from bareboat.config import Settings
from bareboat.model import Image, Job, Site
from bareboat.project.recipes.catalogue import MPIS
from bareboat.project.recipes.target import TargetSite
from bareboat.session import Session, recipes, variants
from bareboat.session.variants import Result, Variant
from bareboat_base.errors import UsageError
from bareboat_images.builder.options import Built
from bareboat_images.store import Store

MATRIX = {"mpi": ("openmpi-4.1.8", "openmpi-5.0.11"), "python": ("3.11",)}


def unused(given: Mapping[str, str]) -> tuple[str, ...]:
    """Of a Dockerfile with ARG MPI and ARG python."""
    return tuple(name for name in given if name not in ("MPI", "python"))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["mpi"], "is not NAME=VALUE"),
        (["=a"], "is not NAME=VALUE"),
        (["a b=c"], "is not NAME=VALUE"),
        (["mpi="], "an empty value"),
        (["mpi=a,,b"], "an empty value"),
        (["mpi=a/b"], "cannot be part"),
        (["mpi=a,a"], "a value twice"),
        (["mpi=a", "mpi=b"], "given twice"),
        ([f"m{n}=" + ",".join("abcdefghij") for n in range(3)], "1,000 variants"),
    ],
)
def test_a_bad_matrix(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        variants.read(texts)
    assert caught.value.remedy


def test_the_variants_have_names_and_arguments() -> None:
    one, two = variants.plan(MATRIX, "train:{mpi}", unused)
    assert (one.tag, two.tag) == ("train:openmpi-4.1.8", "train:openmpi-5.0.11")
    assert one.arguments == {"MPI": "openmpi-4.1.8", "python": "3.11"}
    assert one.title == "mpi=openmpi-4.1.8 python=3.11"


@pytest.mark.parametrize(
    ("matrix", "tag", "said"),
    [
        (MATRIX, None, "requires --tag"),
        (MATRIX, "train", "the same name"),
        (MATRIX, "train:{python}", "the same name"),
        (MATRIX, "train:{mpi}-{cuda}", "names 'cuda'"),
        ({"cuda": ("12", "13")}, "train:{cuda}", "neither ARG cuda nor ARG CUDA"),
    ],
)
def test_variants_that_cannot_be(matrix: dict[str, tuple[str, ...]], tag: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        variants.plan(matrix, tag, unused)
    assert caught.value.remedy


class Notes(console.Progress):
    """Keeps what is noted."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(store=Store(tmp_path / "store"), settings=Settings({}), reporter=Notes(), environment={})


def variant_images() -> dict[str, Image]:
    """Images that differ in their MPI."""
    libraries = {"openmpi": ("libmpi.so.40",), "mpich": ("libmpi.so.12",)}
    return {
        mpi.title: make_image(
            digest=fake_digest(letter),
            mpis=(mpi.facts,),
            glibc="2.36",
            mpi_users={"mpi4py": libraries[mpi.name]},
        )
        for mpi, letter in zip(MPIS, "abc", strict=True)
    }


def job(image: str) -> Job:
    return Job(name="x", command=("true",), workdir="/", image=image)


@pytest.mark.parametrize(
    ("site", "expected"), [(HDR, "openmpi-5.0.11"), (CRAY, "mpich-5.0.2"), (OLD_GPUS, "openmpi-4.1.8")]
)
def test_a_job_uses_the_variant_that_the_site_starts_most_directly(
    session: Session, monkeypatch: pytest.MonkeyPatch, site: Site, expected: str
) -> None:
    images = variant_images()
    names = {f"train:{title}": image.digest for title, image in images.items()} | {
        "other:x": fake_digest("a")
    }
    monkeypatch.setattr(Store, "names", lambda _self: names)
    monkeypatch.setattr(
        Store, "image", lambda _self, digest: next(i for i in images.values() if i.digest == digest)
    )
    settled = variants.settle(session, job("train:{mpi}"), site, None)
    assert settled.image == f"train:{expected}"
    assert isinstance(session.reporter, Notes)
    assert "of 3 variants" in session.reporter.notes[0]
    assert variants.settle(session, job("train:x"), site, None).image == "train:x"
    with pytest.raises(UsageError, match="no variant of the image"):
        variants.settle(session, job("gone:{mpi}"), site, None)


def test_the_table_names_the_variant_of_this_site(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    images = variant_images()
    monkeypatch.setattr(recipes, "site_of", lambda *_: here(HDR))
    results = [
        Result(variant=Variant(values={"mpi": title}, arguments={}, tag=f"x:{title}"), built=built(image))
        for title, image in images.items()
    ]
    failed = Result(variant=Variant(values={"mpi": "z"}, arguments={}, tag="x:z"), error=UsageError("no"))
    table = variants.judge(session, [*results, failed])
    assert table.chosen is not None
    assert table.chosen.variant.tag == "x:openmpi-5.0.11"
    assert [each.starts for each in table.results] == [True, True, True, False]
    plain = [msgspec.structs.replace(image, mpis=()) for image in images.values()]
    without = [Result(variant=results[0].variant, built=built(image)) for image in plain]
    assert variants.judge(session, without).chosen is None
    assert variants.judge(session, results[:1]).chosen is None


def here(site: Site) -> TargetSite:
    return target(site, "this machine")


def built(image: Image) -> Built:
    return Built(image=image, steps=3, cached=1, warnings=())
