"""Errors in a stage that do not depend on the values of its variables. Pure.

They are reported before the first step, which may take an hour.
"""

from __future__ import annotations

from collections.abc import Iterator

from bareboat_base import argument_limits
from bareboat_base.printable import quoted
from bareboat_images.builder import config, copying, places
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.stages import Stage, expanded

#: Instructions with variables in their words; other words go to a shell or are used unchanged.
EXPANDED = ("WORKDIR", "USER", "STOPSIGNAL", "VOLUME", "MAINTAINER")
NETWORKS = ("default", "none", "host")


class _Anything(dict[str, str]):
    """Variables that are all set."""

    def get(self, _name: str, _default: object = None) -> str:
        return "1"


def check(stage: Stage, escape: str) -> None:
    """Check a stage. Raises RecipeError with the line."""
    for step in stage.steps:
        for text in _expanded_texts(step):
            expanded(step, text, _Anything(), escape)
        _check_ids(step, escape)
        if step.name in ("EXPOSE", "STOPSIGNAL"):
            for word in step.args:
                if _is_plain(word, escape):
                    config.Config().apply(step, (word,), {})
        elif step.name in ("COPY", "ADD"):
            mode = step.flag("chmod")
            if mode and _is_plain(mode, escape):
                try:
                    copying.mode_change(mode)
                except ValueError as error:
                    raise step.fault(str(error), remedy="--chmod=755, or: --chmod=u=rwX,go=rX") from None
        elif step.name == "RUN":
            if _is_plain(step.flag("network") or "", escape):
                network(step, step.flag("network") or "default")
            _check_size(step)


def _check_ids(step: Instruction, escape: str) -> None:
    owner = step.args[0] if step.name == "USER" else step.flag("chown") or ""
    if not _is_plain(owner, escape):
        return
    for text in owner.split(":", 1):
        if (wrong := places.number_fault(text.strip())) is not None:
            raise step.fault(wrong, remedy="use a smaller number, or a name of /etc/passwd or /etc/group")


def _check_size(step: Instruction) -> None:
    """A RUN is one argument of a shell, and Linux limits its size."""
    words = step.args if step.is_json or not step.heredocs else [each.data for each in step.heredocs]
    if (wrong := argument_limits.fault(words)) is not None:
        raise step.fault(f"it {wrong}", remedy="write a script: COPY script.sh /tmp/, RUN sh /tmp/script.sh")


def network(step: Instruction, name: str) -> str:
    """Check the network of a RUN. Raises RecipeError."""
    if name not in NETWORKS:
        raise step.fault(f"--network={quoted(name)} is not supported", remedy="use default, none or host")
    return name


def _expanded_texts(step: Instruction) -> Iterator[str]:
    if step.name in (*EXPANDED, "EXPOSE", "COPY", "ADD"):
        yield from step.args
    for name, value in step.pairs:
        yield from (name, value or "")
    for flag in ("chmod", "chown", "network"):
        yield step.flag(flag) or ""
    yield from step.all("exclude")


def _is_plain(text: str, escape: str) -> bool:
    return "$" not in text and escape not in text
