"""Names of environment variables: which there can be, and which shells and tools hand on as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bareboat.errors import UsageError
from bareboat.model.execution import fault

#: What the job script says of the run to its ranks (architecture.md).
_OF_THE_RUN = r"BAREBOAT_(RUN|RUN_DIR|CONTROL|NODE|NODES|MASTER|PORT|INTERFACE|JOB)"


def check_variable(name: str, value: str) -> None:
    """Raise UsageError for what an environment cannot carry, and for what the job script sets itself."""
    _check_own(name, "environment")
    if not name.isidentifier():
        raise UsageError(
            f"{name!r} is not a name for an environment variable",
            remedy="use letters, digits and underscores under [environment]",
        )
    if "\0" in value:
        raise UsageError(
            f"the value of {name} holds a NUL byte, which no environment can carry",
            remedy="write the value to a file, and set the file's path",
        )
    if (reason := fault(environment={name: value})) is not None:
        raise UsageError(f"the job {reason}", remedy="write the value to a file, and set the file's path")


def _check_own(name: str, key: str) -> None:
    if re.fullmatch(_OF_THE_RUN, name):
        raise UsageError(
            f"{name} is set by Bareboat for each run", key=key, remedy="leave it out, or use another name"
        )


#: What a value is shown as.
NOT_SHOWN = "(not shown)"
# Expressions are compiled when they are first used: every start imports this module.
_SECRET = (
    r"token|secret|passw|(^|_)pass(_|$)|passphrase|api_?key|(^|_)keys?(_|$)|credential|(^|_)auth|cookie|(^|_)dsn(_|$)"
    r"|private|_pw$|_url$|_uri$|proxy$"
)


def looks_secret(name: str) -> bool:
    """Whether the value of a variable of this name may well be a secret. A URL can hold a password."""
    return re.search(_SECRET, name, re.IGNORECASE) is not None


def digestible(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment goes into a digest that others see: a secret is soon guessed by its digest."""
    return {name: "" if looks_secret(name) else value for name, value in environment.items()}


#: Variables that belong to the job script, to shells, to the loader, or to tools between the script and the
#: command: none of them holds a secret, and `[environment]` can set them.
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
    """Whether shells and tools hand the environment variable on as it is. Names that are not ASCII are lost
    in shells."""
    return name.isascii() and re.fullmatch(_SCRIPTS, name) is None


def check_passed_on(name: str) -> None:
    """Raise UsageError for a name that environment_from cannot have."""
    _check_own(name, "environment_from")
    if not re.fullmatch(_PASSED_ON, name, re.ASCII):
        raise UsageError(
            f"{name!r} is not a name for environment_from",
            key="environment_from",
            remedy="use capital letters, digits and underscores, or any letters with an underscore",
        )
    if not is_carried(name) or name in _SCRIPTS_OWN:
        raise UsageError(
            f"{name} cannot be in environment_from: the job script or a tool below it uses it",
            key="environment_from",
            remedy=f"set {name} under [environment]",
        )
