"""The shim of Apptainer: the same command lines through it and through Apptainer itself."""

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_lines import Lines, assert_alike
from images import busybox, tar
from machines import HERE
from registries import sha256
from tools import completed, tool

from bareboat_shim import shims

#: Command lines. `$T`: the tool; `box`: a directory without metadata; `meta`: one with Apptainer's. What both
#: print and their exit codes must be equal.
LINES = """
$T exec box echo hello
$T exec box sh -c 'kill -TERM $$'
$T exec box sh -c 'kill -KILL $$'
$T exec "$PWD/box" pwd
$T exec box /no/such/path
$T exec no-such-image true
$T -q exec box id -u
$T exec box sh -c 'echo "$#:$1:$2"' sh 'a b' '*'
printf 'one\\ntwo\\n' | $T exec box cat
$T exec box sh -c 'echo out; echo err >&2'
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
$T exec --pwd /no-such-directory box pwd
$T exec --mount type=bind,src=$PWD/data,dst=/mnt,ro box sh -c 'cat /mnt/file; touch /mnt/new; echo $?'
$T exec --bind data/file:/bin box true
$T exec box sh -c 'cat <&7' 7< data/file
SINGULARITY_BIND=$PWD/data:/mnt $T exec --bind data:/srv box sh -c 'cat /mnt/file /srv/file'
$T exec --contain box sh -c 'pwd; ls -A $HOME /tmp; touch /tmp/x && ls /tmp'
$T exec --containall box sh -c 'pwd; test $$ -lt 99; echo $?; ls -A /tmp'
$T exec --contain --workdir work box sh -c 'touch /tmp/kept'; ls work/tmp
$T exec --no-home --pwd / box sh -c 'ls -A $HOME 2>/dev/null | wc -l'
$T exec --home "$PWD/home:/home/other" box sh -c 'echo $HOME; ls $HOME'
$T exec --no-mount tmp --pwd / box sh -c 'ls -A /tmp'
$T exec --pid box sh -c 'exit 3'
$T exec box whoami
$T run box -c 'echo run'
$T shell box -c 'echo ignored'
echo 'echo from stdin' | $T shell box
echo 'echo $0' | $T shell --shell /bin/sh box
$T inspect meta
$T inspect --runscript meta
$T inspect --json --labels meta
$T --version
""".strip().splitlines()
#: Variables, for an image without metadata, one of a definition file, and one of a registry.
VARIABLES = r"""
X=host $T exec IMAGE sh -c 'echo "[$X]"'
CUDA_HOME=/host $T exec IMAGE sh -c 'echo "[$CUDA_HOME]"'
PYTHONPATH=/host $T exec IMAGE sh -c 'echo "[$PYTHONPATH]"'
LD_LIBRARY_PATH=/host $T exec IMAGE sh -c 'echo "[$LD_LIBRARY_PATH]"'
E=host $T exec IMAGE sh -c 'echo "[${E-unset}]"'
X= $T exec IMAGE sh -c 'echo "[${X-unset}]"'
NEW=host $T exec IMAGE sh -c 'echo "[$NEW]"'
NEW= $T exec IMAGE sh -c 'echo "[${NEW-unset}]"'
NEW='a  b' $T exec IMAGE sh -c 'echo "[$NEW]"'
NEW='$HOME`x`"\' $T exec IMAGE sh -c 'echo "[$NEW]"'
NEW='*' $T exec IMAGE sh -c 'echo "[$NEW]"'
export NEW=$(printf 'a\nb'); $T exec IMAGE sh -c 'echo "[$NEW]"'
X=host $T exec --cleanenv IMAGE sh -c 'echo "[$X]"'
NEW=host $T exec -e IMAGE sh -c 'echo "[${NEW-unset}]"'
APPTAINERENV_X=env $T exec -e IMAGE sh -c 'echo "[$X]"'
APPTAINERENV_X=env $T exec IMAGE sh -c 'echo "[$X]"'
SINGULARITYENV_X=env $T exec IMAGE sh -c 'echo "[$X]"'
SINGULARITYENV_X=one APPTAINERENV_X=two $T exec IMAGE sh -c 'echo "[$X]"'
APPTAINERENV_X= $T exec IMAGE sh -c 'echo "[${X-unset}]"'
X=host APPTAINERENV_X=env $T exec IMAGE sh -c 'echo "[$X]"'
APPTAINERENV_X='$HOME' $T exec IMAGE sh -c 'echo "[$X]"'
APPTAINERENV_X='$PATH' $T exec IMAGE sh -c 'echo "[$X]"'
APPTAINERENV_X='a"b' $T exec IMAGE sh -c 'echo "[$X]"'
APPTAINERENV_X='a\b' $T exec IMAGE sh -c 'echo "[$X]"'
APPTAINERENV_X='$(echo hi)' $T exec IMAGE sh -c 'echo "[$X]"'
APPTAINERENV_X='`echo hi`' $T exec IMAGE sh -c 'echo "[$X]"'
$T exec --env X=flag IMAGE sh -c 'echo "[$X]"'
$T exec --env X= IMAGE sh -c 'echo "[${X-unset}]"'
X=host $T exec --env X=flag IMAGE sh -c 'echo "[$X]"'
APPTAINERENV_X=env $T exec --env X=flag IMAGE sh -c 'echo "[$X]"'
$T exec --env 'X=$HOME' IMAGE sh -c 'echo "[$X]"'
$T exec --env 'X=${HOME}/y' IMAGE sh -c 'echo "[$X]"'
$T exec --env 'X=\$HOME' IMAGE sh -c 'echo "[$X]"'
$T exec --env 'X=a"b' IMAGE sh -c 'echo "[$X]"'
$T exec --env "X=it's" IMAGE sh -c 'echo "[$X]"'
$T exec --env 'X=a\b' IMAGE sh -c 'echo "[$X]"'
$T exec --env 'X=$(echo hi)' IMAGE sh -c 'echo "[$X]"'
$T exec --env 'X=`echo hi`' IMAGE sh -c 'echo "[$X]"'
$T exec --env 'X=$NONE' IMAGE sh -c 'echo "[$X]"'
$T exec --no-eval --env 'X=$HOME' IMAGE sh -c 'echo "[$X]"'
$T exec --no-eval --env 'X=$(echo hi)' IMAGE sh -c 'echo "[$X]"'
$T exec --env A=1,B=2 IMAGE sh -c 'echo "[$A][$B]"'
$T exec --env 'A=x y' --env B=2 IMAGE sh -c 'echo "[$A][$B]"'
$T exec --env 'A=1,x,B=2' IMAGE sh -c 'echo "[$A][$B]"'
$T exec --env-file variables IMAGE sh -c 'echo "$ONE|$TWO|$THREE|$FOUR|$FIVE|$SIX"'
ONE=host $T exec --env-file variables IMAGE sh -c 'echo "$ONE|$THREE"'
APPTAINERENV_ONE=env $T exec --env-file variables IMAGE sh -c 'echo "$ONE"'
$T exec --env-file variables --env ONE=flag IMAGE sh -c 'echo "$ONE|$THREE"'
$T exec --env-file none IMAGE true
$T exec --env-file words IMAGE true
$T exec --env 'A="x,y",B=2' IMAGE sh -c 'echo "[$A][$B]"'
$T exec --env 'A=x,y' IMAGE sh -c 'echo "[$A]"'
APPTAINERENV_PREPEND_PATH=/first $T exec IMAGE sh -c 'echo $PATH'
APPTAINERENV_APPEND_PATH=/last $T exec IMAGE sh -c 'echo $PATH'
APPTAINERENV_PATH=/bin $T exec IMAGE sh -c 'echo $PATH'
APPTAINERENV_PATH=/bin APPTAINERENV_PREPEND_PATH=/first APPTAINERENV_APPEND_PATH=/last $T exec IMAGE sh -c 'echo $PATH'
$T exec --env PATH=/bin:/flag IMAGE sh -c 'echo $PATH'
APPTAINERENV_HOME=/env $T exec IMAGE sh -c 'echo $HOME'
$T exec --env HOME=/flag IMAGE sh -c 'echo $HOME'
$T exec --env PREPEND_PATH=/flag IMAGE sh -c 'echo $PATH'
$T exec --env APPEND_PATH=/flag IMAGE sh -c 'echo $PATH'
$T exec --env 'PATH=$PATH:/flag' IMAGE sh -c 'echo $PATH'
$T exec --env LD_LIBRARY_PATH=/flag IMAGE sh -c 'echo $LD_LIBRARY_PATH'
APPTAINERENV_LD_LIBRARY_PATH=/env $T exec IMAGE sh -c 'echo $LD_LIBRARY_PATH'
$T exec --env LD_LIBRARY_PATH= IMAGE sh -c 'echo "[$LD_LIBRARY_PATH]"'
PATH=/host:$PATH $T exec IMAGE sh -c 'echo $PATH'
PATH=/host:/usr/local/bin:/usr/bin:/bin $T exec IMAGE sh -c 'echo $USER_PATH'
$T exec IMAGE sh -c 'echo $PATH:$LD_LIBRARY_PATH:$PYTHONPATH:$CUDA_HOME'
$T exec -e IMAGE sh -c 'echo $PATH:$LD_LIBRARY_PATH:$PYTHONPATH:$CUDA_HOME'
$T exec IMAGE sh -c 'echo "$Q|$D|$M|$FROM_IMAGE"'
HOME=/elsewhere $T exec IMAGE sh -c 'echo $HOME; pwd'
$T exec -e IMAGE sh -c 'echo "[$LANG][$TERM][$PS1]"'
$T exec IMAGE sh -c 'echo "[$LANG][$TERM][$PS1][$PROMPT_COMMAND]"'
LANG=de_DE $T exec -e IMAGE sh -c 'echo "[$LANG]"'
http_proxy=p HTTPS_PROXY=q $T exec -e IMAGE sh -c 'echo "[$http_proxy][$HTTPS_PROXY]"'
X=host $T exec -C IMAGE sh -c 'echo "[$X]"'
X=host $T exec --compat IMAGE sh -c 'echo "[$X]"'
$T exec IMAGE sh -c 'echo $APPTAINER_NAME $SINGULARITY_NAME $APPTAINER_COMMAND $APPTAINER_CONTAINER $APPTAINER_ENVIRONMENT'
$T exec --bind data:/mnt IMAGE sh -c 'echo $APPTAINER_BIND $SINGULARITY_BIND'
$T run IMAGE a b
X=host $T run IMAGE a
$T exec IMAGE env -i sh -c 'echo "[$X]"'
""".strip().splitlines()  # noqa: E501
#: Mounts and directories.
MOUNTS = r"""
$T exec --bind link:/mnt IMAGE cat /mnt/file
$T exec --bind link:/srv/new IMAGE cat /srv/new/file
$T exec --bind "$PWD/link:/mnt:ro" IMAGE sh -c 'cat /mnt/file; touch /mnt/x; echo $?'
$T exec --bind flink:/etc/extra IMAGE cat /etc/extra
$T exec --bind $PWD/link IMAGE ls $PWD/link
$T exec --bind $PWD/flink IMAGE cat $PWD/flink
$T exec --bind data:$PWD/link IMAGE ls link
$T exec --bind flink:/mnt/f IMAGE cat /mnt/f
$T exec --bind link IMAGE ls link
$T exec --bind broken:/mnt IMAGE true
$T exec --bind data:/mnt,data:/srv IMAGE sh -c 'cat /mnt/file /srv/file'
mkdir fresh; $T exec --contain --bind fresh:/home IMAGE ls -d /home; c=$?; rm -r fresh; exit $c
$T exec --contain --bind data:/home/x IMAGE sh -c 'ls /home/x'
$T exec --contain --bind data:$HOME IMAGE sh -c 'ls $HOME'
$T exec --contain --bind data:$HOME/d IMAGE sh -c 'ls $HOME/d'
$T exec --contain --bind data:/tmp IMAGE ls /tmp
$T exec --contain --bind data:/tmp/d IMAGE ls /tmp/d
$T exec --containall --bind data:/var/tmp IMAGE ls /var/tmp
$T exec --containall --bind data:/opt/d IMAGE ls /opt/d
$T exec --bind data:/proc IMAGE true
$T exec --bind data:/proc/new IMAGE true
$T exec --bind data:/dev/new IMAGE true
$T exec --bind /dev/null:/dev/zero IMAGE true
$T exec --bind data:/home/other IMAGE ls /home/other
mkdir fresh; $T exec --bind fresh:/home IMAGE ls -d /home; c=$?; rm -r fresh; exit $c
mkdir fresh; $T exec --no-home --bind fresh:/home IMAGE ls -d /home; c=$?; rm -r fresh; exit $c
mkdir fresh; $T exec --bind fresh:/tmp IMAGE ls -d /tmp; c=$?; rm -r fresh; exit $c
$T exec --bind data:/a/b/c IMAGE ls /a/b/c
$T exec --bind data IMAGE ls data
$T exec --bind . IMAGE ls box/bin/cat
$T exec --bind .:/mnt IMAGE cat /mnt/data/file
$T exec --bind data/:/mnt/ IMAGE cat /mnt/file
$T exec --bind data//file:/mnt/f IMAGE cat /mnt/f
$T exec --bind data:/mnt --bind work:/mnt IMAGE ls /mnt
$T exec --bind data:/mnt --bind work:/mnt/file IMAGE true
$T exec --bind data/file:/etc/passwd IMAGE cat /etc/passwd
$T exec --bind data/file:/bin/new IMAGE cat /bin/new
$T exec --bind /etc/hostname:/etc/hostname IMAGE true
$T exec --bind none:/mnt IMAGE true
$T exec --bind data:/mnt:rw IMAGE sh -c 'touch /mnt/w && rm /mnt/w; echo $?'
$T exec --bind data:/mnt:bad IMAGE true
$T exec --bind :/mnt IMAGE true
$T exec --mount type=bind,src=link,dst=/mnt IMAGE cat /mnt/file
$T exec --mount type=bind,source=data,destination=/mnt IMAGE cat /mnt/file
$T exec --mount type=bind,src=none,dst=/mnt IMAGE true
$T exec --mount type=tmpfs,dst=/mnt IMAGE true
APPTAINER_BIND=link:/mnt $T exec IMAGE cat /mnt/file
APPTAINER_BINDPATH=data:/mnt $T exec IMAGE cat /mnt/file
SINGULARITY_BINDPATH=data:/mnt $T exec IMAGE cat /mnt/file
$T exec --overlay over --writable-tmpfs IMAGE true
$T exec --overlay over:ro --writable-tmpfs IMAGE sh -c 'touch /n; echo $?'
$T exec --writable-tmpfs IMAGE sh -c 'touch /n /etc/n; echo $?; ls /n'
$T exec IMAGE sh -c 'touch /n 2>/dev/null; echo $?'
$T exec --home work IMAGE sh -c 'echo $HOME; pwd'
$T exec --home work:/home/w IMAGE sh -c 'echo $HOME; pwd'
$T exec --home link:/home/w IMAGE sh -c 'echo $HOME; ls -d $HOME'
$T exec --home none IMAGE true
$T exec --no-home IMAGE sh -c 'echo $HOME; pwd'
$T exec --contain IMAGE sh -c 'echo $HOME; pwd; ls -A $HOME'
$T exec --contain --home work IMAGE sh -c 'echo $HOME; pwd'
$T exec --contain --workdir work --scratch /s IMAGE sh -c 'touch /s/x; ls /s'
$T exec --scratch /s,/t IMAGE sh -c 'ls -d /s /t'
$T exec --contain --scratch /tmp/s IMAGE sh -c 'ls -d /tmp/s'
$T exec --workdir none --contain IMAGE true
$T exec --pwd /mnt IMAGE pwd
$T exec --pwd data IMAGE pwd
$T exec --cwd /srv IMAGE pwd
$T exec --contain --pwd /srv IMAGE pwd
$T exec --no-mount cwd IMAGE pwd
$T exec --no-mount home IMAGE pwd
$T exec --no-mount tmp,home IMAGE pwd
cd data && $T exec ../IMAGE cat file
cd data && $T exec --pwd / ../IMAGE pwd
cd / && $T exec "$OLDPWD/IMAGE" pwd
cd /tmp && $T exec "$OLDPWD/IMAGE" pwd
$T exec --bind data:mnt IMAGE true
$T exec --bind data:../mnt IMAGE true
$T exec --bind 'data:/m n' IMAGE ls '/m n'
$T exec --no-umask IMAGE sh -c umask
umask 077; $T exec IMAGE sh -c umask
$T exec --pid IMAGE sh -c 'echo $$ | wc -l'
$T exec --uts --ipc --pid IMAGE echo x
$T exec --net --network none IMAGE echo x
$T exec --nv IMAGE echo x
$T exec IMAGE sh -c 'exit 9'
$T exec IMAGE nothing
$T exec IMAGE /etc
$T exec --bind data:/mnt IMAGE /mnt/file
""".strip().splitlines()
#: Of these, those that the shim refuses, as its page says.
REFUSED = (
    "--bind $PWD/link IMAGE ls $PWD/link", "--bind $PWD/flink IMAGE cat $PWD/flink",
    "--bind data:$PWD/link IMAGE ls link", "--contain --bind fresh:/home IMAGE ls -d /home",
    "exec --bind fresh:/home IMAGE ls -d /home", "--bind data:/proc IMAGE true",
)  # fmt: skip
#: Of these, those of which the exit codes are equal: Apptainer prints its help.
ONLY_CODES = ("--env 'A=1,x,B=2'", "--env 'A=\"x,y\",B=2'")
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
  export X=image
  export CUDA_HOME="${CUDA_HOME:-/image/cuda}"
  export PYTHONPATH=/image/py:$PYTHONPATH
  export LD_LIBRARY_PATH=/image/lib:$LD_LIBRARY_PATH
  export PATH=/image/bin:$PATH
  export E=

%runscript
  echo "runscript: $*: $FROM_IMAGE"

%labels
  author somebody
"""
_APPLETS = ("cp", "false", "pwd", "wc")
_OF_OCI = {
    "Env": ["PATH=/usr/bin:/bin", "X=image", "CUDA_HOME=/image/cuda", "PYTHONPATH=/image/py", "E=", "M=l1",
            "LD_LIBRARY_PATH=/image/lib", 'Q=a "b" c', "D=$HOME/x"],
    "Entrypoint": ["/bin/echo", "entry"], "Cmd": ["default"], "WorkingDir": "/srv",
}  # fmt: skip
#: A tool may write into what it mounts, so each has its own.
_DIRECTORIES = ("data", "work", "home", "over")


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
    write_archive(folder / "oci.tar", layer, _OF_OCI)
    for name, source in (("meta", "meta.def"), ("oci", "docker-archive:oci.tar")):
        build = [tool("apptainer"), "--silent", "build", "--sandbox", name, source]
        subprocess.run(build, cwd=folder, check=True, timeout=120)
    for name in _DIRECTORIES:
        (folder / name).mkdir()
    (folder / "data/file").write_text("data\n")
    (folder / "home/here").touch()
    for name, target in (("link", "data"), ("flink", "data/file"), ("broken", "none")):
        (folder / name).symlink_to(target)
    (folder / "variables").write_text(
        "ONE=1\n# comment\nTWO='two words'\nTHREE=\"$ONE three\"\nFOUR=$HOME/x\nFIVE='$HOME'\nexport SIX=6\n"
    )
    (folder / "words").write_text("A=a b\n")
    return folder


def write_archive(path: Path, layer: bytes, execution: dict[str, object]) -> None:
    """A Docker archive of one layer."""
    document = {"architecture": HERE.oci, "os": "linux", "config": execution,
                "rootfs": {"type": "layers", "diff_ids": [sha256(layer)]}}  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": ["box:1"], "Layers": ["layer.tar"]}]
    texts = {"config.json": document, "manifest.json": manifest}
    files = {name: json.dumps(text).encode() for name, text in texts.items()}
    path.write_bytes(tar({**files, "layer.tar": layer}))


def started(place: Path, program: str, out: Path, lines: Sequence[str]) -> Lines:
    """Runs all command lines with the program."""
    out.mkdir()
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": os.path.expanduser("~"),
        "BAREBOAT_STORE": str(place / "store"),
    }
    return Lines(lines, program, out, place, environment)


def test_command_lines_do_what_apptainer_does(place: Path, tmp_path: Path) -> None:
    (written,) = shims.write(tmp_path / "shims", ["apptainer"], force=True, dry_run=False)
    running = {
        out: started(place, program, tmp_path / out, (*LINES, *MALFORMED))
        for out, program in (("theirs", tool("apptainer")), ("ours", written.path))
    }
    theirs, ours = (lines.answers() for lines in running.values())
    assert_alike(theirs, ours, codes=MALFORMED)
    silent = [
        line for line, (_, code, messages) in ours.items() if code == "255\n" and "FATAL:" not in messages
    ]
    assert not silent, silent


@pytest.mark.parametrize(
    ("lines", "image"),
    # Each line with two images.
    [(VARIABLES, "box"), (VARIABLES[::2], "meta"), (VARIABLES[1::2], "oci"), (MOUNTS, "box")],
    ids=["variables", "variables-of-a-definition-file", "variables-of-a-registry", "mounts"],
)
def test_variables_and_mounts_are_those_of_apptainer(
    place: Path, tmp_path: Path, lines: Sequence[str], image: str
) -> None:
    """Equal, or refused where the page says it."""
    (written,) = shims.write(tmp_path / "shims", ["apptainer"], force=True, dry_run=False)
    named = [line.replace("IMAGE", image) for line in lines]
    running = {}
    for out, program in (("theirs", tool("apptainer")), ("ours", written.path)):
        own = tmp_path / f"place-{out}"
        shutil.copytree(place, own, symlinks=True, ignore=shutil.ignore_patterns("store"))
        running[str(own)] = started(own, program, tmp_path / out, named)
    theirs, ours = (lines.answers(hidden=own) for own, lines in running.items())
    refused = {line for line in ours if any(each.replace("IMAGE", image) in line for each in REFUSED)}
    assert all(ours[line].code != "0\n" and "FATAL:" in ours[line].messages for line in refused)
    codes = [line.partition(": ")[2] for line in ours if any(each in line for each in ONLY_CODES)]
    compared = [
        {line: answers[line] for line in answers if line not in refused} for answers in (theirs, ours)
    ]
    assert_alike(*compared, codes=codes)


@pytest.mark.parametrize("path", ["", "/no/such/directory"])
def test_a_shim_runs_where_path_was_unloaded(place: Path, tmp_path: Path, path: str) -> None:
    (written,) = shims.write(tmp_path / "shims", ["apptainer"], force=True, dry_run=False)
    done = completed(
        [written.path, "exec", "box", "echo", "hello"],
        cwd=place,
        env={"PATH": path, "HOME": os.path.expanduser("~"), "BAREBOAT_STORE": str(tmp_path / "store")},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
