"""The rule that compares an image's glibc with the libraries that a site binds into it."""

from __future__ import annotations

from collections.abc import Iterator

from bareboat.gpu import versions as gpu
from bareboat.lint.site import site_of
from bareboat_base.versions import numbers
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.rule import Hit, Rule, Severity
from bareboat_images.lint.systems import is_musl


def _old_libc(subject: ImageSubject) -> Iterator[Hit]:
    site, glibc = site_of(subject), subject.image.glibc
    if site is None or (glibc is None and is_musl(subject)):
        return
    for driver in site.gpu_drivers:
        refusal = gpu.judge_glibc(driver, glibc)
        if refusal is not None:
            yield Hit(message=refusal.reason, remedy=refusal.remedy, severity=Severity.ERROR)
    for mpi in site.mpis:
        needed = mpi.runtime.glibc if mpi.runtime is not None else None
        if needed and glibc and numbers(needed) > numbers(glibc) and subject.image.mpi_users:
            yield Hit(
                message=f"the site's {mpi.title} requires glibc {needed}, and the image has {glibc}: it "
                "cannot be "
                "bound into the image",
                remedy=f"use a base image with glibc {needed} or newer, or rely on the image's own MPI",
            )


RULES = (
    Rule(
        code="BB1301",
        title="The image's glibc is older than the libraries that a site binds into it need.",
        why="The GPU driver's libraries, or the site's MPI, are loaded into the image's programs.",
        remedy="use a base image with a newer glibc",
        image=_old_libc,
        site=True,
    ),
)
