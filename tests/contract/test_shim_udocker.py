"""The shim of udocker: the same command lines through it and through udocker itself, with its engine P1."""

import os
import pwd
import shutil
from pathlib import Path

import pytest
from command_lines import Lines, assert_alike, upload_images
from registries import real_registry
from tools import tool

from bareboat_shim import shims

#: Command lines, in their order. `$T`: the tool, `$R`: options for the registry of the tests. What both print
#: and their exit codes must be equal.
LINES = """
$T install > /dev/null; echo $?
$T -q pull $R lab/box:1
$T -q pull $R lab/entry:1
$T -q pull $R lab/top:1
$T -q images | grep ^lab | sort
$T create --name=box lab/box:1 | wc -l
$T create --name=box lab/box:1
$T create lab/no-such:1
$T ps | tail -n +2 | cut -c37-
$T -q run --nobanner box sh -c 'id -u; id -g; whoami; pwd'
$T -q run box sh -c 'echo "$#:$1:$2"; echo err >&2; exit 7' sh 'a b' '*'
$T -q run box sh -c 'touch /kept; mkdir -p /deep/er; echo x > /etc/new; echo $?'
$T -q run box ls -d /kept /deep/er /etc/new
$T -q run box sh -c 'chown 405:100 /kept; echo $?'
printf 'one\\ntwo\\n' | $T -q run box cat
$T -q run box no-such-program
$T -q run box /etc/passwd
$T -q run box /no/such/path
$T -q run -v $PWD/data/file:/x --volume=$PWD/data box cat /x $PWD/data/file
$T -q run -v $PWD/data:/m -v $PWD/more:/m/inner box cat /m/inner/here
$T -q run -v $PWD/data:/mnt box sh -c 'echo x > /mnt/w; cat /mnt/w'; cat data/w; rm data/w
$T -q run -v /no/such/source:/mnt box true
$T -q run -v relative:/mnt box true
$T -q run -v $PWD/data:/ box true
$T -q run -v $PWD/data:relative box true
$T -q run --novol=$PWD/data -v $PWD/data:/mnt/none box sh -c 'test -e /mnt/none/file; echo $?'
$T -q run -w /bin box pwd
$T -q run --workdir=/no/such/directory box pwd
$T -q run -w /mnt/w -v $PWD/data:/mnt/w box cat file
VALUE=outside OTHER=outside $T -q run -e VALUE box sh -c 'echo [$VALUE][$OTHER]'
VALUE=outside FROM_IMAGE=outside $T -q run --hostenv box sh -c 'echo [$VALUE][$FROM_IMAGE]'
$T -q run -e VALUE=1 --env=OTHER='a b' -e FROM_IMAGE=flag box sh -c 'echo [$VALUE][$OTHER][$FROM_IMAGE]'
$T -q run --env-file=variables box sh -c 'echo [$ONE][$TWO][$FROM_IMAGE]'
$T -q run box sh -c 'echo $PATH:$HOME:$USER:$LOGNAME:$USERNAME:$SHLVL:$TERM'
PATH=/outside:$PATH $T -q run --hostenv box sh -c 'echo $PATH'
HOME=$PWD/data $T -q run --hostenv box sh -c 'echo $HOME'
$T -q run box env | sed 's/=.*//' | grep -v '^container_\\|BAREBOAT\\|PROOT\\|OLDPWD\\|PWD' | sort
$T -q run --user=guest box sh -c 'whoami; pwd; echo $HOME:$USER'
$T -q run --user=1234:99 -w / box sh -c 'id -u; id -g'
$T -q run --user=nobody-here -w / box sh -c 'id -u; echo $USER:$HOME'
$T -q run --hostauth --user=$ME -w / box sh -c 'id -un; id -u'
$T -q run --hostauth --user=no-such-user -w / box true
$T -q run --hostauth --hostenv --user=$ME -v $PWD:$PWD -w $PWD box sh -c 'pwd; cat data/file; echo $USER'
$T -q run --bindhome --user=$ME --hostauth -v $PWD:$PWD box sh -c 'test "$PWD" = "$HOME"; echo $?'
$T -q run --containerauth --user=guest box sh -c 'id -u; echo $USER'
$T -q run --containerauth --user=no-such-user box whoami
$T -q run --rm lab/box:1 ls -d /kept
$T -q run --rm lab/top:1 pwd
$T -q run --rm --hostauth --hostenv --user=$ME -v $PWD/data:/home/ lab/top:1 sh -c 'pwd; cat /home/file'
$T -q run --rm lab/entry:1
$T -q run --rm lab/entry:1 x 'y z'
$T -q run --rm --entrypoint='/bin/echo other' lab/entry:1 word
$T -q run --rm --entrypoint= lab/entry:1 /bin/echo plain
$T -q run --rm -w / --nometa lab/entry:1 pwd
$T -q run --rm lab/entry:1 >/dev/null; $T ps | wc -l
$T -q run -i -t --cpuset-cpus=0 box grep Cpus_allowed_list /proc/self/status
$T -q run --location=$PWD/tree --user=root -w / any echo location
$T -q run --name=made lab/box:1 touch /kept
$T -q run made ls -d /kept
$T -q run --pull=reuse --name=made lab/box:1 ls -d /kept
$T setup --execmode=P2 box
$T setup --execmode=Q7 box
$T setup --execmode=F1 no-such-container
$T setup --nvidia no-such-container
$T name box second
$T -q run second echo second
$T rename second third
$T -q run second echo second
$T rmname third
$T rmname third
$T name no-such-container name
$T tag lab/box:1 lab/box:2
$T -q images | grep ^lab | sort
$T tag lab/box:1 lab/box:2
$T -q rmi lab/box:2
$T -q rmi lab/box:2
$T inspect lab/entry:1 | grep -A3 '"Cmd"\\|"Entrypoint"'
test -d "$($T inspect -p box)/bin"; echo $?
$T inspect no-such:1
$T -q rm made
$T -q rm made
$T run
$T no-such-verb
$T run --no-such-flag box true
$T -q rm box
$T ps | tail -n +2
""".strip().splitlines()
#: Where udocker prints its help: the exit codes must be equal.
CODES = ("$T run", "$T no-such-verb", "$T run --no-such-flag box true")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with files for the command lines."""
    folder = tmp_path_factory.mktemp("shim")
    for name in ("data", "more", "tree/bin", "tree/etc"):
        (folder / name).mkdir(parents=True)
    (folder / "data/file").write_text("data\n")
    (folder / "data/inner").mkdir()
    (folder / "more/here").write_text("here\n")
    (folder / "variables").write_text("ONE=1\n# comment\nTWO=two words\nFROM_IMAGE=file\n")
    box = Path(tool("busybox")).read_bytes()
    (folder / "tree/bin/echo").write_bytes(box)
    (folder / "tree/bin/echo").chmod(0o755)
    return folder


def started(place: Path, program: str, out: Path, registry: str) -> Lines:
    """Runs all command lines with the program, which has a store of its own."""
    out.mkdir()
    work = out / "work"
    shutil.copytree(place, work)
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": os.path.expanduser("~"),
        "USER": pwd.getpwuid(os.getuid()).pw_name,
        "ME": pwd.getpwuid(os.getuid()).pw_name,
        "R": f"--registry=http://{registry}",
        "BAREBOAT_STORE": str(out / "store"),
        "UDOCKER_DIR": str(out / "udocker"),
    }
    return Lines(LINES, program, out, work, environment)


def test_command_lines_do_what_udocker_does(place: Path, tmp_path: Path) -> None:
    with real_registry(tmp_path / "registry") as registry:
        upload_images(registry)
        (written,) = shims.write(tmp_path / "shims", ["udocker"], force=True, dry_run=False)
        running = {
            out: started(place, program, tmp_path / out, registry.address)
            for out, program in (("theirs", tool("udocker")), ("ours", written.path))
        }
        theirs, ours = (lines.answers(hidden=str(tmp_path / out)) for out, lines in running.items())
    assert_alike(theirs, ours, codes=CODES)
