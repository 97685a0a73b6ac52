"""The shim of Apptainer: the same command lines through it and through Apptainer itself."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from command_lines import Lines, assert_alike
from images import busybox
from tools import tool

from bareboat_shim import shims

#: Command lines. `$T`: the tool; `box`: a directory without metadata; `meta`: one with Apptainer's. What both
#: print and their exit codes must be equal.
LINES = """
$T exec box echo hello
$T exec box sh -c 'exit 7'
$T exec box sh -c 'kill -TERM $$'
$T exec box sh -c 'kill -KILL $$'
$T exec "$PWD/box" pwd
$T exec box no-such-program
$T exec box /etc/passwd
$T exec box /no/such/path
$T exec no-such-image true
$T -q exec box id -u
$T exec box sh -c 'echo "$#:$1:$2"' sh 'a b' '*'
printf 'one\\ntwo\\n' | $T exec box cat
$T exec box sh -c 'echo out; echo err >&2'
$T exec box sh -c 'touch /new; echo $?'
$T exec --writable-tmpfs box sh -c 'touch /new; echo $?; ls /new'
mkdir "$OUT/over"
$T exec --overlay "$OUT/over" box sh -c 'echo kept > /etc/kept; rm /bin/true; cp /bin/busybox /bin/added'
$T exec --overlay="$OUT/over" box sh -c 'cat /etc/kept; ls /bin/true 2>/dev/null | wc -l'
$T exec -o "$OUT/over:ro" box sh -c 'cat /etc/kept; touch /new 2>/dev/null; echo $?'
$T exec --overlay "$OUT/over" box added echo added
$T exec --overlay "$OUT/over" box true
$T exec --overlay no-such box true
ls "$OUT/over"; $T exec box sh -c 'cat /etc/kept'
$T exec box sh -c 'echo $HOME; cd; pwd'
f=written-$$; $T exec box sh -c "echo x > $f && cat $f"; cat $f; rm -f $f
$T exec box sh -c 'touch /tmp/shim-$PPID && rm /tmp/shim-$PPID; echo $?'
$T exec --pwd /bin box pwd
$T exec --pwd /no-such-directory box pwd
$T exec --bind data:/mnt/data box cat /mnt/data/file
$T exec -B "$PWD/data:/mnt/x:ro" box sh -c 'touch /mnt/x/new; echo $?'
$T exec -B data/file:/etc/extra,data:/srv/deep/er box sh -c 'cat /etc/extra; ls /srv/deep/er'
$T exec --mount type=bind,src=$PWD/data,dst=/mnt,ro box sh -c 'cat /mnt/file; touch /mnt/new; echo $?'
$T exec --bind /no-such-source box true
$T exec --bind data/file:/bin box true
$T exec box sh -c 'cat <&7' 7< data/file
$T exec --bind data:/mnt:nonsense box true
APPTAINER_BIND=$PWD/data:/mnt $T exec box cat /mnt/file
SINGULARITY_BIND=$PWD/data:/mnt $T exec --bind data:/srv box sh -c 'cat /mnt/file /srv/file'
VALUE=outside $T exec box sh -c 'echo $VALUE'
VALUE=outside $T exec --cleanenv box sh -c 'echo [$VALUE][$LANG]'
APPTAINERENV_VALUE=1 $T exec --cleanenv box sh -c 'echo $VALUE'
APPTAINERENV_VALUE=1 SINGULARITYENV_VALUE=2 SINGULARITYENV_B=3 $T exec box sh -c 'echo $VALUE $B'
APPTAINERENV_VALUE=1 $T exec --env VALUE=2 box sh -c 'echo $VALUE'
$T exec --env A=1,B=2 --env 'C=x y' box sh -c 'echo $A $B $C'
$T exec --env-file variables box sh -c 'echo "$ONE|$TWO|$THREE"'
LD_LIBRARY_PATH=/outside $T exec box sh -c 'echo $PATH:$LD_LIBRARY_PATH'
APPTAINERENV_PREPEND_PATH=/first $T exec box sh -c 'echo $PATH'
APPTAINERENV_PATH=/bin $T exec box sh -c 'echo $PATH'
$T exec box sh -c 'echo $APPTAINER_NAME $SINGULARITY_NAME $APPTAINER_COMMAND $APPTAINER_CONTAINER'
$T exec --contain box sh -c 'pwd; ls -A $HOME /tmp; touch /tmp/x && ls /tmp'
$T exec --containall box sh -c 'pwd; test $$ -lt 99; echo $?; ls -A /tmp'
$T exec --contain --workdir work box sh -c 'touch /tmp/kept'; ls work/tmp
$T exec --no-home --pwd / box sh -c 'ls -A $HOME 2>/dev/null | wc -l'
$T exec --home "$PWD/home" box sh -c 'echo $HOME; ls $HOME'
$T exec --home "$PWD/home:/home/other" box sh -c 'echo $HOME; ls $HOME'
$T exec --scratch /scratch box sh -c 'touch /scratch/x && ls /scratch'
$T exec --no-mount tmp --pwd / box sh -c 'ls -A /tmp'
$T exec --pid box sh -c 'exit 3'
$T exec --ipc --uts box echo namespaces
umask 027; $T exec box sh -c umask
$T exec --no-umask box sh -c umask
$T exec box whoami
$T run box -c 'echo run'
$T run meta a b
$T exec meta sh -c 'echo $FROM_IMAGE:$OVERRIDDEN'
OVERRIDDEN=outside $T exec meta sh -c 'echo $OVERRIDDEN'
APPTAINERENV_OVERRIDDEN=flag $T exec meta sh -c 'echo $OVERRIDDEN'
$T exec --cleanenv meta sh -c 'echo $FROM_IMAGE'
$T shell box -c 'echo ignored'
echo 'echo from stdin' | $T shell box
echo 'echo $0' | $T shell --shell /bin/sh box
$T inspect meta
$T inspect --runscript meta
$T inspect --json --labels meta
$T --version
""".strip().splitlines()
#: Those that Apptainer answers with its help: the exit codes must be equal.
MALFORMED = """
$T exec --no-such-flag box true
$T no-such-verb
$T exec box
$T exec --env nonsense box true
""".strip().splitlines()

_DEFINITION = """\
Bootstrap: localimage
From: box

%environment
  export FROM_IMAGE="set by the image"
  export OVERRIDDEN=image

%runscript
  echo "runscript: $*: $FROM_IMAGE"

%labels
  author somebody
"""
_APPLETS = ("cp", "false", "pwd", "wc")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with images and files for the command lines."""
    folder = tmp_path_factory.mktemp("shim")
    layer = busybox(
        **{f"bin/{name}": "busybox" for name in _APPLETS}, **{"var": None, "var/tmp": None, "usr": None}
    )
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        archive.extractall(folder / "box")
    (folder / "box/etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (folder / "box/etc/group").write_text("root:x:0:\n")
    (folder / "meta.def").write_text(_DEFINITION)
    build = [tool("apptainer"), "--silent", "build", "--sandbox", "meta", "meta.def"]
    subprocess.run(build, cwd=folder, check=True, timeout=120)
    for name in ("data", "work", "home"):
        (folder / name).mkdir()
    (folder / "data/file").write_text("data\n")
    (folder / "home/here").touch()
    (folder / "variables").write_text("ONE=1\n# comment\nTWO='two words'\nTHREE=\"$ONE three\"\n")
    return folder


def started(place: Path, program: str, out: Path) -> Lines:
    """Runs all command lines with the program."""
    out.mkdir()
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": os.path.expanduser("~"),
        "BAREBOAT_STORE": str(place / "store"),
    }
    return Lines((*LINES, *MALFORMED), program, out, place, environment)


def test_command_lines_do_what_apptainer_does(place: Path, tmp_path: Path) -> None:
    (written,) = shims.write(tmp_path / "shims", ["apptainer"], force=True, dry_run=False)
    running = {
        out: started(place, program, tmp_path / out)
        for out, program in (("theirs", tool("apptainer")), ("ours", written.path))
    }
    theirs, ours = (lines.answers() for lines in running.values())
    assert_alike(theirs, ours, codes=MALFORMED)
    silent = [
        line for line, (_, code, messages) in ours.items() if code == "255\n" and "FATAL:" not in messages
    ]
    assert not silent, silent


@pytest.mark.parametrize("path", ["", "/no/such/directory"])
def test_a_shim_runs_where_path_was_unloaded(place: Path, tmp_path: Path, path: str) -> None:
    (written,) = shims.write(tmp_path / "shims", ["apptainer"], force=True, dry_run=False)
    done = subprocess.run(
        [written.path, "exec", "box", "echo", "hello"],
        cwd=place,
        env={"PATH": path, "HOME": os.path.expanduser("~"), "BAREBOAT_STORE": str(tmp_path / "store")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
