"""Rules that compare an image with a site: GPUs, MPI, networks. The others are in bareboat_images.lint."""

from __future__ import annotations

from bareboat.model import Site
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject


def site_of(subject: ImageSubject | RecipeSubject) -> Site | None:
    """The site that a subject is compared with: all facts, of which the rules for any image read a few."""
    return subject.site if isinstance(subject.site, Site) else None
