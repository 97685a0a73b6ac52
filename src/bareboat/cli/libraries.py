"""The libraries of the extra `study`, checked before anything is measured."""

from __future__ import annotations

from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line

_LIBRARY = ("numpy", "scipy", "matplotlib")


def check_library(*, imports: bool = True) -> None:
    """Raise UsageError where one is not installed or does not work. `imports`: what makes a directory in the
    user's home, for matplotlib."""
    from importlib import import_module
    from importlib.util import find_spec

    missing = [name for name in _LIBRARY if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"not installed, but required for a study: {', '.join(missing)}",
            remedy="pip install 'bareboat[study]'",
        )
    for name in _LIBRARY if imports else ():
        try:
            import_module(name)
        except Exception as error:  # for example an incompatible version
            raise UsageError(
                f"{name}, required for a study, cannot be imported",
                context=one_line(f"{type(error).__name__}: {error}"),
                remedy=f"pip install --force-reinstall {name}",
            ) from None
