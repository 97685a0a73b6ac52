"""Lines of a shell, run with a tool and with its shim: what both print, and their exit codes."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from images import busybox, pack, upload
from registries import RealRegistry

#: Runs each line as a shell of its own.
_DRIVER = """
n=0
while IFS= read -r line; do
  (eval "$line") > "$OUT/$n.out" 2> "$OUT/$n.err" < /dev/null
  echo $? > "$OUT/$n.code"
  n=$((n + 1))
done < "$OUT/lines"
"""
_KINDS = ("out", "code", "err")
_PASSWD = b"root:x:0:0:root:/root:/bin/sh\nguest:x:405:100:guest:/home:/bin/sh\n"
_ENVIRONMENT = ["PATH=/usr/bin:/bin", "FROM_IMAGE=image"]
_ENTRY = {"Entrypoint": ["/bin/echo", "entry"], "Cmd": ["default"], "WorkingDir": "/srv", "User": "guest"}
_APPLETS = ("false", "pwd", "wc", "mkdir", "grep", "chown")


class Answer(NamedTuple):
    """What a line printed, its exit code, and its messages."""

    out: str
    code: str
    messages: str


class Lines:
    """The lines of one program, which run in the background."""

    def __init__(
        self, lines: Sequence[str], program: str, out: Path, work: Path, environment: Mapping[str, str]
    ) -> None:
        """`out`: an existing directory for the answers; `work`: the working directory."""
        self._lines, self._out = lines, out
        (out / "lines").write_text("\n".join(lines) + "\n")
        variables = {"TERM": "xterm", "T": program, "OUT": str(out), **environment}
        self._process = subprocess.Popen(["bash", "-c", _DRIVER], cwd=work, env=variables)

    def answers(self, *, hidden: str = "") -> dict[str, Answer]:
        """Number and line -> the answer. `hidden`: a path that is replaced."""
        assert self._process.wait(500) == 0
        return {
            f"{number}: {line}": Answer(*(self._text(f"{number}.{kind}", hidden) for kind in _KINDS))
            for number, line in enumerate(self._lines)
        }

    def _text(self, name: str, hidden: str) -> str:
        text = (self._out / name).read_text(errors="replace")
        return text.replace(hidden, "OUT") if hidden else text


def assert_alike(theirs: Mapping[str, Answer], ours: Mapping[str, Answer], *, codes: Sequence[str]) -> None:
    """Whether a tool and its shim print the same with the same exit codes. `codes`: of these lines, the exit
    codes only."""
    different = [
        f"{line}\n  the tool: {theirs[line]}\n  the shim: {ours[line]}"
        for line in theirs
        if theirs[line].code != ours[line].code
        or (line.partition(": ")[2] not in codes and theirs[line].out != ours[line].out)
    ]
    assert not different, f"{len(different)} of {len(theirs)} differ\n" + "\n".join(different)


def upload_images(registry: RealRegistry) -> None:
    """`lab/box:1` without an entry point, `lab/entry:1` with one, a directory and a user, and `lab/top:1`
    whose directory is `/`."""
    layer = busybox(
        **{f"bin/{name}": "busybox" for name in _APPLETS},
        var=None,
        usr=None,
        home=None,
        srv=None,
        **{"etc/passwd": _PASSWD, "etc/group": b"root:x:0:\nusers:x:100:\n"},
    )
    upload(registry, pack(layer, Env=_ENVIRONMENT), "lab/box:1")
    upload(registry, pack(layer, Env=_ENVIRONMENT, **_ENTRY), "lab/entry:1")
    upload(registry, pack(layer, Env=_ENVIRONMENT, WorkingDir="/"), "lab/top:1")
