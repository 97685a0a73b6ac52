"""The libraries of the extra `study`, checked before anything is measured."""

from __future__ import annotations

from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line

_LIBRARY = ("numpy", "scipy", "matplotlib")


def check_installed() -> None:
    """Raise UsageError where a library for analysis and plots is not installed."""
    from importlib.util import find_spec

    missing = [name for name in _LIBRARY if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"not installed, but required for a study: {', '.join(missing)}",
            remedy="pip install 'bareboat[study]'",
        )


def check_library() -> None:
    """Raise UsageError where one is not installed or does not work. Importing matplotlib makes a directory in
    the user's home."""
    from importlib import import_module

    check_installed()
    for name in _LIBRARY:
        try:
            import_module(name)
        except Exception as error:  # for example an incompatible version
            raise UsageError(
                f"{name}, required for a study, cannot be imported",
                context=one_line(f"{type(error).__name__}: {error}"),
                remedy=f"pip install --force-reinstall {name}",
            ) from None
