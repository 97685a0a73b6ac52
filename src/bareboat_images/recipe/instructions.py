"""Converts logical lines to instructions, checked as far as possible without values of variables."""

from __future__ import annotations

import json
import re

from msgspec import Struct

from bareboat_base.expressions import expression
from bareboat_base.nearest import nearest
from bareboat_base.printable import quoted
from bareboat_images.recipe import words
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.lines import Heredoc, Line, opening

#: Instruction -> its flags; True for boolean flags, which need no value.
FLAGS: dict[str, dict[str, bool]] = {
    "FROM": {"platform": False},
    "RUN": {"mount": False, "network": False, "security": False, "device": False},
    "COPY": {
        "from": False, "chown": False, "chmod": False, "link": True, "parents": True, "exclude": False,
    },
    "ADD": {
        "checksum": False, "chown": False, "chmod": False, "link": True,
        "unpack": True, "exclude": False,
    },
}  # fmt: skip
#: Flags that may be given several times.
_REPEATED = ("mount", "exclude")
INSTRUCTIONS = (
    "FROM", "RUN", "CMD", "LABEL", "MAINTAINER", "EXPOSE", "ENV", "ADD", "COPY", "ENTRYPOINT", "VOLUME",
    "USER", "WORKDIR", "ARG", "ONBUILD", "STOPSIGNAL", "HEALTHCHECK", "SHELL",
)  # fmt: skip
#: Instructions in JSON form or as one text for the shell.
_COMMANDS = ("RUN", "CMD", "ENTRYPOINT")
_REFUSED = {
    ("RUN", "security"): "every RUN is without privileges; remove --security",
    ("RUN", "device"): "devices of the host are not available to RUN; remove --device",
    ("COPY", "parents"): "COPY a/b /a/b, for each directory",
    ("ADD", "unpack"): "COPY keeps an archive; RUN tar -xf unpacks one",
}


class Instruction(Struct, frozen=True, kw_only=True):
    """One instruction. `args`: its words, or the text for the shell as one; `is_json`: the JSON form;
    `pairs`: names and values of ENV, LABEL and ARG (None: an ARG without a default)."""

    name: str
    line: int
    last: int
    text: str
    args: tuple[str, ...] = ()
    is_json: bool = False
    flags: tuple[tuple[str, str | None], ...] = ()
    pairs: tuple[tuple[str, str | None], ...] = ()
    heredocs: tuple[Heredoc, ...] = ()

    def flag(self, name: str) -> str | None:
        """The value of a flag; None if it is not given."""
        return next((value or "" for found, value in self.flags if found == name), None)

    def switch(self, name: str) -> bool:
        """Whether a boolean flag is set."""
        value = next((value for found, value in self.flags if found == name), "false")
        return value is None or value.lower() in ("true", "1", "t")

    def all(self, name: str) -> tuple[str, ...]:
        """The values of a flag that may be given several times."""
        return tuple(value or "" for found, value in self.flags if found == name)

    def fault(self, message: str, *, remedy: str = "") -> RecipeError:
        """An error in this instruction."""
        first = self.text.partition("\n")[0]
        return RecipeError(f"{self.name}: {message}", line=self.line, text=first, remedy=remedy)


#: Bytes that are not UTF-8, as they are decoded.
_NO_UTF_8 = expression("[\udc80-\udcff]")


def parse(line: Line, escape: str) -> Instruction:
    """Parse one instruction. Raises RecipeError for an unknown or malformed one."""
    if _NO_UTF_8.search(line.text):
        raise RecipeError(
            "the instruction is not UTF-8",
            line=line.number,
            text=line.text.partition("\n")[0].encode(errors="surrogateescape").decode("latin-1"),
            remedy="convert the file: iconv -f latin1 -t utf-8 Dockerfile > Dockerfile.utf8",
        )
    if line.word not in INSTRUCTIONS:
        likely = nearest(line.word, INSTRUCTIONS)
        raise RecipeError(
            f"unknown instruction {quoted(line.word)}",
            line=line.number,
            text=line.text.partition("\n")[0],
            remedy=f"write {likely}" if likely else f"use one of {', '.join(INSTRUCTIONS)}",
        )
    bare = Instruction(name=line.word, line=line.number, last=line.last, text=line.text)
    rest = line.rest
    flags: tuple[tuple[str, str | None], ...] = ()
    if line.word in FLAGS:
        flags, rest = words.split_flags(rest, escape)
        _check_flags(bare, flags)
    elif rest.startswith("--") and line.word not in (*_COMMANDS, "ENV", "LABEL", "MAINTAINER", "HEALTHCHECK"):
        raise bare.fault(f"it takes no flags, and has {rest.split()[0]}", remedy="remove the flag")
    return _Parser(bare, rest, escape, line.heredocs, flags).run()


def _check_flags(bare: Instruction, flags: tuple[tuple[str, str | None], ...]) -> None:
    known = FLAGS[bare.name]
    seen = set()
    for name, value in flags:
        if name not in known:
            likely = nearest(name, known)
            raise bare.fault(
                f"unknown flag --{name}",
                remedy=f"write --{likely}"
                if likely
                else f"flags: {', '.join(f'--{each}' for each in known)}",
            )
        allowed = (bare.name, name, value) == ("RUN", "security", "sandbox")  # the default of every RUN
        if not allowed and (why := _REFUSED.get((bare.name, name))) is not None:
            raise bare.fault(f"--{name} is not supported", remedy=why)
        if value is None and not known[name]:
            raise bare.fault(f"--{name} has no value", remedy=f"write --{name}=VALUE")
        if value is not None and known[name] and value.lower() not in ("true", "false", "1", "0", "t", "f"):
            raise bare.fault(f"--{name} is {quoted(value)}", remedy=f"write --{name} or --{name}=false")
        if name in seen and name not in _REPEATED:
            raise bare.fault(f"--{name} is given twice", remedy="remove one")
        seen.add(name)


class _Parser:
    """Parses the text after an instruction's word and flags."""

    def __init__(
        self,
        bare: Instruction,
        rest: str,
        escape: str,
        heredocs: tuple[Heredoc, ...],
        flags: tuple[tuple[str, str | None], ...],
    ) -> None:
        self._bare = bare
        self._rest = rest
        self._escape = escape
        self._heredocs = heredocs
        self._flags = flags

    def run(self) -> Instruction:
        name = self._bare.name
        if name == "ONBUILD":
            raise self._bare.fault(
                "ONBUILD is not supported: no recipe adds instructions to another",
                remedy="write the instruction in the recipes that start from this image",
            )
        if not self._rest and name not in ("CMD", "ENTRYPOINT"):
            raise self._bare.fault("it has no argument", remedy=_EXAMPLES[name])
        match name:
            case "FROM":
                return self._from()
            case "RUN" | "CMD" | "ENTRYPOINT":
                return self._command()
            case "SHELL":
                made = self._listed()
                if not made.is_json or not made.args:
                    raise self._bare.fault("it requires the JSON form", remedy=_EXAMPLES[name])
                return made
            case "ENV" | "LABEL":
                return self._paired()
            case "ARG":
                return self._arguments()
            case "COPY" | "ADD":
                return self._copied()
            case "VOLUME":
                made = self._listed()
                if not made.args or any(not each.strip() for each in made.args):
                    raise self._bare.fault("a path is empty", remedy=_EXAMPLES[name])
                return made
            case "EXPOSE":
                return self._made(args=tuple(words.split_words(self._rest, self._escape)))
            case _:  # MAINTAINER, USER, WORKDIR, STOPSIGNAL, HEALTHCHECK
                return self._made(args=(self._rest,))

    def _made(
        self,
        *,
        args: tuple[str, ...] = (),
        is_json: bool = False,
        pairs: tuple[tuple[str, str | None], ...] = (),
    ) -> Instruction:
        bare = self._bare
        return Instruction(
            name=bare.name,
            line=bare.line,
            last=bare.last,
            text=bare.text,
            args=args,
            is_json=is_json,
            flags=self._flags,
            pairs=pairs,
            heredocs=self._heredocs,
        )

    def _json(self) -> tuple[str, ...] | None:
        try:
            return words.json_list(self._rest)
        except ValueError as error:
            raise self._bare.fault(
                str(error), remedy=f'write {self._bare.name} ["program", "argument"]'
            ) from None

    def _from(self) -> Instruction:
        found = self._rest.split()
        if len(found) == 3 and found[1].upper() == "AS":
            return self._made(args=(found[0], found[2]))
        if len(found) == 1:
            return self._made(args=(found[0],))
        raise self._bare.fault(
            f"{quoted(self._rest)} is not IMAGE or IMAGE AS NAME", remedy=_EXAMPLES["FROM"]
        )

    def _command(self) -> Instruction:
        found = self._json()
        if found is not None:
            if self._bare.name == "RUN" and not found:
                raise self._bare.fault("the list is empty", remedy=_EXAMPLES["RUN"])
            return self._made(args=found, is_json=True)
        return self._made(args=(self._rest,) if self._rest else ())

    def _listed(self) -> Instruction:
        found = self._json()
        if found is not None:
            return self._made(args=found, is_json=True)
        return self._made(args=tuple(words.split_words(self._rest, self._escape)))

    def _paired(self) -> Instruction:
        try:
            found = tuple(words.pairs(self._rest, self._escape))
        except ValueError as error:
            raise self._bare.fault(str(error), remedy=_EXAMPLES[self._bare.name]) from None
        if any(not name for name, _ in found):
            raise self._bare.fault("a name is empty", remedy=_EXAMPLES[self._bare.name])
        return self._made(pairs=found)

    def _arguments(self) -> Instruction:
        found: list[tuple[str, str | None]] = []
        for word in words.split_words(self._rest, self._escape):
            if word.startswith("#"):  # the rest is a comment, which BuildKit declares as further arguments
                break
            name, equals, value = word.partition("=")
            if "$" not in name:  # else checked once its variables have values
                check_argument(self._bare, name)
            found.append((name, value if equals else None))
        return self._made(pairs=tuple(found))

    def _copied(self) -> Instruction:
        made = self._listed()
        if len(made.args) < 2:
            raise self._bare.fault(
                "it requires a source and a destination", remedy=_EXAMPLES[self._bare.name]
            )
        if not made.is_json and (begun := opening(made.args[-1], self._escape)) is not None:
            raise self._bare.fault(
                "its destination is a heredoc", remedy=f"{self._bare.name} <<{begun.name} /DIRECTORY/FILE"
            )
        if not made.is_json and any(re.search(r"\s", each) for each in made.args):
            raise self._bare.fault(
                "a path with white space requires the JSON form",
                remedy=f"{self._bare.name} "
                + json.dumps([words.unquoted(each, self._escape) for each in made.args], ensure_ascii=False),
            )
        if made.flag("from") is not None and "$" in (made.flag("from") or ""):
            raise self._bare.fault(
                "--from does not take variables", remedy="FROM $NAME AS stage, and then COPY --from=stage"
            )
        return made


def check_argument(step: Instruction, name: str) -> None:
    """Raise RecipeError for what is no name of an ARG."""
    if not name or not name.replace("_", "a").isalnum() or name[0].isdigit():
        raise step.fault(f"{quoted(name)} is not a name", remedy=_EXAMPLES["ARG"])


_EXAMPLES = {
    "FROM": "FROM debian:12, or FROM debian:12 AS build",
    "RUN": "RUN apt-get update",
    "LABEL": 'LABEL org.opencontainers.image.title="My image"',
    "MAINTAINER": "LABEL org.opencontainers.image.authors=NAME",
    "EXPOSE": "EXPOSE 8080/tcp",
    "ENV": "ENV NAME=value",
    "ADD": "ADD archive.tar.gz /opt/",
    "COPY": "COPY file.txt /opt/",
    "VOLUME": 'VOLUME ["/data"]',
    "USER": "USER name",
    "WORKDIR": "WORKDIR /app",
    "ARG": "ARG VERSION=1.0",
    "STOPSIGNAL": "STOPSIGNAL SIGTERM",
    "HEALTHCHECK": "HEALTHCHECK CMD curl -f http://localhost/",
    "SHELL": 'SHELL ["/bin/bash", "-c"]',
}
