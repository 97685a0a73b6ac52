"""What engines, launchers and schedulers have in common: a base class with the defaults, and how those of
installed packages are loaded and checked."""

from __future__ import annotations

import importlib
from abc import ABC
from collections.abc import Iterator, Mapping
from typing import TypeVar

from bareboat_base.errors import BareboatError, PlanError
from bareboat_base.nearest import nearest


class Backend(ABC):
    """An engine, a launcher or a scheduler.

    The base class of each kind has the attributes and methods, with their defaults. An attribute without
    a default is only annotated there; a method without one is abstract. Names that begin with an underscore
    are the subclass's own.
    """

    #: Its name in job files, on command lines and in `bareboat.registry`.
    NAME: str

    def parts(self) -> tuple[Backend, ...]:
        """Backends of the same kind that belong to it."""
        return ()


B = TypeVar("B", bound=Backend)


def load(base: type[B], name: str, place: str) -> B:
    """An instance of the class that an installed package adds as MODULE:CLASS. Raises PlanError for what is
    not a complete and correct subclass."""
    kind = base.__name__.lower()
    remedy = f"correct {place}, or uninstall its package"
    module, _, attribute = place.partition(":")
    refused = f"the {kind} {name!r} of an installed package cannot be used"
    try:
        found = importlib.import_module(module)
        added = vars(found).get(attribute) if attribute else found
        if not (isinstance(added, type) and issubclass(added, base)):
            reasons = [_not_a_subclass(vars(found), attribute, base, place)]
        elif not (reasons := list(faults(added, base))):
            instance = added()
            reasons = [fault for part in instance.parts() for fault in faults(type(part), base)]
            if name != instance.NAME:
                reasons.append(f"NAME is {instance.NAME!r}, and its entry point is named {name!r}")
            if not reasons:
                return instance
    except BareboatError:
        raise
    except Exception as error:  # by the code of another package
        raise PlanError(f"{refused}: {place}: {type(error).__name__}: {error}", remedy=remedy) from error
    raise PlanError(f"{refused}: {reasons[0]}", context="\n".join(reasons[1:]), remedy=remedy)


def _not_a_subclass(module: Mapping[str, object], attribute: str, base: type, place: str) -> str:
    if attribute and attribute not in module:
        near = nearest(attribute, [name for name, value in module.items() if isinstance(value, type)])
        return f"{place} does not exist" + (f"; did you mean {near}?" if near else "")
    return f"{place} is not a subclass of {base.__module__}.{base.__name__}"


def faults(backend: type[Backend], base: type[Backend]) -> tuple[str, ...]:
    """The public names of a subclass that the base class does not have, since a misspelt one would leave the
    default in force; and what the subclass lacks."""
    names = sorted(set(_public(*base.__mro__)))
    unknown = []
    for name in sorted(set(_public(*backend.__mro__)) - {*names}):
        near = nearest(name, names)
        unknown.append(f"{name} is unknown" + (f"; did you mean {near}?" if near else ""))
    lacks = [name for name in names if not hasattr(backend, name) or name in backend.__abstractmethods__]
    return (*unknown, *(f"{name} is missing" for name in lacks))


def _public(*classes: type) -> Iterator[str]:
    """The public names that classes define or annotate."""
    for each in classes:
        if each is not object:
            yield from (name for name in (*vars(each), *each.__annotations__) if not name.startswith("_"))
