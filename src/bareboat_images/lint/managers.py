"""Package managers: which commands install, what they leave in a layer, and how to avoid that. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from bareboat_images.lint.recipe import Step, removes
from bareboat_images.lint.rule import Edit
from bareboat_images.lint.shell import Command


class Manager(Struct, frozen=True, kw_only=True):
    """A package manager. `programs`; `verbs`: its subcommands that install; `cache`: the directories of its
    cache, `~` for the user's home; `system`: of a distribution; `off`: flags, and `off_variables`:
    environment variables that disable the cache; `clean`: its own subcommands that empty it; `cleanup`: what
    `--fix` appends, empty where a later step may need the cache; `flag`: what `--fix` adds after the verb
    instead."""

    name: str
    programs: tuple[str, ...]
    verbs: tuple[str, ...]
    cache: tuple[str, ...]
    system: bool = False
    off: tuple[str, ...] = ()
    off_variables: tuple[str, ...] = ()
    clean: tuple[tuple[str, ...], ...] = ()
    cleanup: str = ""
    flag: str = ""


MANAGERS = (
    Manager(name="apt", programs=("apt-get", "apt", "aptitude"), verbs=("update",), system=True,
            cache=("/var/lib/apt/lists",), cleanup="apt-get clean && rm -rf /var/lib/apt/lists/*"),
    Manager(name="dnf", programs=("dnf", "yum", "microdnf", "tdnf"), system=True,
            verbs=("install", "update", "upgrade", "groupinstall", "reinstall", "localinstall", "makecache"),
            cache=("/var/cache/dnf", "/var/cache/yum", "/var/cache/libdnf5"), clean=(("clean", "all"),),
            cleanup="{program} clean all && rm -rf /var/cache/dnf /var/cache/yum /var/cache/libdnf5"),
    Manager(name="zypper", programs=("zypper",), verbs=("install", "in", "refresh", "ref", "update", "up"),
            system=True, cache=("/var/cache/zypp",), clean=(("clean",), ("cc",)),
            cleanup="zypper clean --all"),
    Manager(name="apk", programs=("apk",), verbs=("add", "update", "upgrade"), system=True,
            cache=("/var/cache/apk",), off=("--no-cache",), flag="--no-cache"),
    Manager(name="pacman", programs=("pacman",), verbs=("-S", "-Sy", "-Syu", "-Syyu"), system=True,
            cache=("/var/cache/pacman/pkg",), clean=(("-Scc",),), cleanup="rm -rf /var/cache/pacman/pkg/*"),
    Manager(name="pip", programs=("pip",), verbs=("install", "wheel", "download"), cache=("~/.cache/pip",),
            off=("--no-cache-dir",), off_variables=("PIP_NO_CACHE_DIR",), clean=(("cache", "purge"),),
            flag="--no-cache-dir"),
    Manager(name="uv", programs=("uv",), verbs=("install", "sync"), cache=("~/.cache/uv",),
            off=("--no-cache", "--no-cache-dir", "-n"), off_variables=("UV_NO_CACHE",),
            clean=(("cache", "clean"), ("cache", "prune")), flag="--no-cache"),
    Manager(name="conda", programs=("conda", "mamba", "micromamba"), verbs=("install", "create", "update"),
            cache=("~/.conda/pkgs", "/opt/conda/pkgs"), clean=(("clean",),),
            cleanup="{program} clean --all --yes"),
    Manager(name="npm", programs=("npm",), verbs=("install", "i", "ci"), cache=("~/.npm",),
            clean=(("cache", "clean"),), cleanup="npm cache clean --force"),
    Manager(name="yarn", programs=("yarn",), verbs=("install", "add", ""),
            cache=("~/.yarn/cache", "~/.cache/yarn", "/usr/local/share/.cache"), clean=(("cache", "clean"),),
            cleanup="yarn cache clean"),
    Manager(name="poetry", programs=("poetry",), verbs=("install",), cache=("~/.cache/pypoetry",),
            off=("--no-cache",), off_variables=("POETRY_NO_CACHE",), clean=(("cache", "clear"),),
            flag="--no-cache"),
    Manager(name="cargo", programs=("cargo",), verbs=("install", "build"),
            cache=("~/.cargo/registry", "/usr/local/cargo/registry")),
    Manager(name="go", programs=("go",), verbs=("install", "build", "get", "mod"),
            cache=("~/.cache/go-build", "~/go/pkg/mod", "/go/pkg/mod"), clean=(("clean",),)),
    Manager(name="spack", programs=("spack",), verbs=("install",), cache=("~/.spack/cache",),
            clean=(("clean",), ("gc",)), cleanup="spack clean --all"),
)  # fmt: skip


class Install(Struct, frozen=True):
    """A command that fills a manager's cache. `verb`: its subcommand, as written."""

    manager: Manager
    command: Command
    verb: str


def find(command: Command) -> Install | None:
    """The manager and verb of an installing command, or None."""
    for manager in MANAGERS:
        if command.program not in manager.programs:
            continue
        plain = command.values if manager.name == "pacman" else command.plain
        if manager.name == "conda" and plain[:1] == ("env",):
            plain = plain[1:]
        if manager.name == "uv" and plain[:1] == ("pip",):
            plain = plain[1:]
        if manager.name == "go" and plain[:1] == ("mod",) and plain[1:2] != ("download",):
            return None
        named = plain[:2] if manager.system else plain[:1]
        verb = next((each for each in named if each in manager.verbs), None)
        if verb is None and not plain and "" in manager.verbs:
            verb = ""
        return Install(manager, command, verb) if verb is not None else None
    return None


def all_of(step: Step) -> Iterator[Install]:
    """The installing commands of a RUN."""
    return (found for command in step.commands if (found := find(command)) is not None)


def leaves(step: Step, install: Install) -> bool:
    """Whether the RUN leaves the manager's cache in its layer."""
    manager, command = install.manager, install.command
    if manager.off and command.has(*manager.off):
        return False
    assigned = dict(each.split("=", 1) for each in command.assignments)
    exported = {
        name: value
        for each in step.commands
        if each.program == "export"
        for name, _, value in (word.partition("=") for word in each.plain)
    }
    for name in manager.off_variables:
        if (assigned | exported).get(name, step.environment.get(name, "")).lower() not in (
            "", "0", "false", "off", "no",
        ):  # fmt: skip
            return False
    places = [each.replace("~", step.home, 1) for each in manager.cache]
    if any(not step.keeps(place) for place in places):
        return False
    if any(removes(step, place, after=command) for place in places):
        return False
    seen = False
    for each in step.commands:
        seen = seen or each is command
        if seen and each.program in manager.programs:
            words = each.values if manager.name == "pacman" else each.plain
            if any(words[: len(clean)] == clean for clean in manager.clean):
                return False
    return True


def flag(install: Install) -> tuple[Edit, ...]:
    """The edit that adds the manager's flag after its verb."""
    word = next((w for w in install.command.arguments if w.value == install.verb), None)
    if word is None or word.end < 0 or not install.manager.flag:
        return ()
    return (Edit(word.end, word.end, f" {install.manager.flag}"),)


def named(command: Command) -> tuple[str, ...]:
    """The packages that a command installs; of another command its words, without flags."""
    install = find(command)
    return command.plain[1:] if install is None else packages(install)


def packages(install: Install) -> tuple[str, ...]:
    """The packages that the command names, without flags and their values."""
    values = list(install.command.values)
    found: list[str] = []
    skip = False
    seen = False
    for value in values:
        if skip:
            skip = False
        elif value.startswith("-"):
            skip = "=" not in value and value in _VALUED
        elif seen:
            found.append(value)
        else:
            seen = value == install.verb
    return tuple(found)


#: Flags whose value is the next word.
_VALUED = frozenset(
    """
    -r --requirement -c --constraint -i --index-url --extra-index-url -f --find-links -t --target -e
    --editable
    --prefix -n --name -p --file --root --trusted-host --channel -o --option --upgrade-strategy --python
    --only-binary --no-binary --platform --src --progress-bar --installroot --enablerepo --disablerepo --repo
    --virtual --features --git --branch --tag --rev --path --config --config-settings -C --timeout --retries
    """.split()  # noqa: SIM905
)
