"""The instructions of a Dockerfile as text, each below its comments (`why`, a paragraph each). Pure."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping

from bareboat_base.printable import printable

_WIDTH = 110
#: What a RUN that downloads may be given: pip's settings, and certificates.
_SECRETS = (
    "--mount=type=secret,id=pip,target=/etc/pip.conf",
    "--mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt",
)


def stage(*, base: str, name: str = "", why: tuple[str, ...] = (), steps: Iterable[str] = ()) -> str:
    """`base`: an image, or the name of a stage above. `name`: "" for the last."""
    return "\n".join((_commented(why, f"FROM {base}" + (f" AS {name}" if name else "")), *steps))


def run(
    *,
    commands: tuple[str, ...],
    why: tuple[str, ...] = (),
    network: bool = False,
    mounts: tuple[tuple[str, str], ...] = (),
) -> str:
    """Commands of the shell; each must succeed. `network`: they download, with the user's settings of pip and
    certificates; `mounts`: stage -> directory of it that they see."""
    options = [f"--mount=from={source},source={path},target={path}" for source, path in mounts]
    if network:
        options += _SECRETS
    head = "".join(f"{each} \\\n    " for each in options)
    return _commented(why, f"RUN {head}" + " && \\\n    ".join(commands))


def copy(*, files: tuple[str, ...], target: str, source: str = "", why: tuple[str, ...] = ()) -> str:
    """Files of the context, or of another stage or image (`source`)."""
    prefix = f"--from={source} " if source else ""
    paths = (*files, target)
    if all(re.fullmatch(r"[\w./@+-]+", each) for each in paths):
        return _commented(why, f"COPY {prefix}{' '.join(paths)}")
    escaped = [re.sub(r"([\\$])", r"\\\1", each) for each in paths]
    return _commented(why, f"COPY {prefix}{json.dumps(escaped, ensure_ascii=False)}")


def env(values: Mapping[str, str]) -> str:
    return "ENV " + " \\\n    ".join(f"{name}={_quoted(text)}" for name, text in values.items())


def arg(name: str, value: str, *, why: tuple[str, ...] = ()) -> str:
    """A value that RUN sees, and the image does not keep."""
    return _commented(why, f"ARG {name}={_quoted(value)}")


def workdir(path: str) -> str:
    return f"WORKDIR {path}"


def comments(paragraphs: Iterable[str]) -> list[str]:
    return [
        line
        for each in paragraphs
        for line in textwrap.wrap(
            printable(each), _WIDTH, initial_indent="# ", subsequent_indent="#   ",
            break_long_words=False, break_on_hyphens=False,
        )
    ]  # fmt: skip


def _commented(why: Iterable[str], text: str) -> str:
    return "\n".join((*comments(why), text))


def _quoted(text: str) -> str:
    """Text in which only $PATH is a variable."""
    return text if re.fullmatch(r"[\w./:@+=$-]+", text) else '"' + re.sub(r'([\\"])', r"\\\1", text) + '"'
