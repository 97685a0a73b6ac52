"""The site that a subject is compared with."""

from __future__ import annotations

from bareboat.model import Site
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject


def site_of(subject: ImageSubject | RecipeSubject) -> Site | None:
    """All facts about the site, of which the rules for any image read a few."""
    return subject.site if isinstance(subject.site, Site) else None
