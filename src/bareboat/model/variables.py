"""Names, and those of environment variables: which are valid, and which shells and tools pass on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from bareboat_base import ranges
from bareboat_base.argument_limits import fault
from bareboat_base.errors import UsageError
from bareboat_base.printable import printable, quoted

#: The variables that the job script sets for its ranks (architecture.md).
_OF_THE_RUN = r"BAREBOAT_(RUN|RUN_DIR|CONTROL|NODE|NODES|MASTER|PORT|INTERFACE|JOB)"


def check_variable(name: str, value: str) -> None:
    """Raise UsageError for invalid variables, and for those that the job script sets itself."""
    _check_own(name, "environment", "environment")
    if not name.isidentifier():
        raise UsageError(
            f"environment has {quoted(name)}, which is not a valid name of an environment variable",
            remedy="use letters, digits and underscores under [environment]",
        )
    if "\0" in value:
        raise UsageError(
            f"the value of {name} contains a NUL byte, which an environment cannot hold",
            remedy="write the value to a file, and set the file's path",
        )
    if (reason := fault(environment={name: value})) is not None:
        raise UsageError(f"the job {reason}", remedy="write the value to a file, and set the file's path")


def _check_own(name: str, key: str, called: str) -> None:
    if re.fullmatch(_OF_THE_RUN, name):
        raise UsageError(
            f"{called} has {name}, which Bareboat sets for each run",
            key=key,
            remedy=f"remove {called} {name}" if called.startswith("-") else f"remove {name} from {called}",
        )


#: The text in place of a value.
NOT_SHOWN = "(not shown)"
# Expressions are compiled at first use, because every start imports this module.
_SECRET = (
    r"token|secret|passw|(^|_)pass(_|$)|passphrase|api_?key|(^|_)keys?(_|$)|credential|(^|_)auth|cookie|(^|_)dsn(_|$)"
    r"|private|_pw$|_url$|_uri$|proxy$"
)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name may hold a secret. A URL can hold a password."""
    return re.search(_SECRET, name, re.IGNORECASE) is not None


def digestible(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment for public digests, from which a secret could be guessed."""
    return {name: "" if looks_secret(name) else value for name, value in environment.items()}


#: Variables of the job script, of shells, of the loader, or of tools between the script and the command: none
#: of them holds a secret, and `[environment]` can set them.
_SCRIPTS = (
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|HOSTNAME|TMPDIR|TZ|TZDIR|PWD|OLDPWD|SHLVL|_|IFS|PS[0-4]|ENV|PPID|UID|EUID"
    r"|GROUPS|RANDOM|SRANDOM|SECONDS|LINENO|OPT(ARG|ERR|IND)|REPLY|DIRSTACK|FUNC(NAME|NEST)|HIST\w*|EPOCH\w*"
    r"|COLUMNS|LINES|MAIL(|CHECK|PATH)|TMOUT|POSIXLY_CORRECT|SHELLOPTS|BASH\w*|CDPATH|GLOBIGNORE|EXECIGNORE"
    r"|IGNOREEOF|COMP_\w*|COPROC|MAPFILE|PIPESTATUS|LANG|LANGUAGE|LC_\w+|LOCPATH|NLSPATH|TEXTDOMAIN(|DIR)"
    r"|LD_\w+|GLIBC_TUNABLES|MALLOC_\w+|GCONV_PATH|PYTHON\w*|GODEBUG|GOMAXPROCS|GOMEMLIMIT|GOGC|GOTRACEBACK"
    r"|XDG_\w+|CONTAINERS?_(CONF\w*|HOST|CONNECTION|STORAGE_CONF)|PODMAN\w*|STORAGE_(DRIVER|OPTS)|NOTIFY_SOCKET"
    r"|LISTEN_(FDS|PID|FDNAMES)|DBUS_SESSION_BUS_ADDRESS|SCRATCH|SQUASH_DIR|CH_(RUNNING|IMAGE_STORAGE|LOG_\w+)"
    r"|PROOT\w*|FAKECHROOT\w*|ENROOT_\w+|SHIFTER\w*|SARUS\w*|BAREBOAT_\w+"
)
#: The job script's own variables are short words without an underscore.
_PASSED_ON = r"[A-Z][A-Z0-9_]*|[A-Za-z][A-Za-z0-9]*_[A-Za-z0-9_]+"
_SCRIPTS_OWN = ("HERE", "AGAIN", "RANK")


def is_carried(name: str) -> bool:
    """Whether shells and tools pass the environment variable on unchanged. Shells lose names that are not
    ASCII."""
    return name.isascii() and re.fullmatch(_SCRIPTS, name) is None


def check_passed_on(called: str, names: Iterable[str]) -> None:
    """Raise UsageError for a name that is not allowed in environment_from. `called`: the user's name for the
    key."""
    key = "environment_from"
    for name in names:
        _check_own(name, key, called)
        if not re.fullmatch(_PASSED_ON, name, re.ASCII):
            before = name.partition("=")[0]
            verb = "is" if called.startswith("-") else "has"
            meant = before if re.fullmatch(_PASSED_ON, before, re.ASCII) else "NAME"
            raise UsageError(
                f"{called} {verb} {quoted(name)}; it must be the name of an environment variable, of capital "
                "letters, digits and _, or of any letters with a _",
                key=key,
                remedy=ranges.setting(called, f'["{meant}"]'),
            )
        if not is_carried(name) or name in _SCRIPTS_OWN:
            set_it = f'remove {name} from {called}, or set {name} = "VALUE" under [environment] instead'
            raise UsageError(
                f"{name} cannot be in {called}: the job script or a tool below it uses it",
                key=key,
                remedy=f'--set environment.{name}="${name}"' if called.startswith("-") else set_it,
            )


#: No scheduler accepts a longer option.
_LONGEST = 4000


def check_name(what: str, text: str, *, key: str = "", remedy: str = "") -> None:
    """Raise UsageError for text that is empty, very long, or has control characters or bytes that are not
    UTF-8. `remedy`: how to give it another value."""
    if not text.strip():
        found = "blank" if text else "empty"
        raise UsageError(f"{what} is {found}", key=key, remedy=f"{remedy or 'give it a value'}, or remove it")
    if len(text) > _LONGEST:
        raise UsageError(
            f"{what} has {len(text):,} characters; the limit is {_LONGEST:,}",
            key=key,
            remedy=f"{remedy}, or remove it" if remedy else "use a shorter value",
        )
    if "\n" in text or "\t" in text or printable(text) != text:
        raise UsageError(
            f"{what} is {quoted(text)}, with a control character or bytes that are not UTF-8",
            key=key,
            remedy=f"{remedy}, or remove it" if remedy else "use one line of letters, digits and punctuation",
        )
