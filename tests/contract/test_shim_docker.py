"""The shim of Docker and Podman: the same command lines through it and through Podman itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from command_lines import Lines, assert_alike, upload_images
from registries import real_registry
from tools import tool

from bareboat_shim import shims

#: Command lines, in their order. `$T`: the tool; `$R`: the registry; `$B`, `$E`: its images. What both print
#: and their exit codes must be equal.
LINES = """
$T pull -q $B > /dev/null; echo $?
$T pull -q $E > /dev/null; echo $?
$T pull -q $R/lab/no-such:1
$T images --format '{{.Repository}}:{{.Tag}}' | sort
$T image exists $B; echo $?
$T image exists $R/lab/no-such:1; echo $?
$T run --rm $B sh -c 'id -u; id -g; whoami; pwd'
$T run --rm $B sh -c 'echo "$#:$1:$2"; echo err >&2; exit 7' sh 'a b' '*'
$T run --rm $B sh -c 'touch /new; mkdir /etc/x; chown 405:100 /new; echo $?; ls -d /new /etc/x'
$T run --rm $B sh -c 'ls /new 2>/dev/null | wc -l'
$T run --rm --read-only $B sh -c 'touch /new 2>/dev/null; echo $?'
$T run --rm $B no-such-program
$T run --rm $B /no/such/path
$T run --rm $B /etc/passwd
$T run --rm $B /etc
printf 'one\\ntwo\\n' | $T run --rm -i $B cat
printf 'one\\ntwo\\n' | $T run --rm $B cat
$T run --rm -v $PWD/data:/mnt/data $B cat /mnt/data/file
$T run --rm -v ./data:/mnt/data:ro $B sh -c 'touch /mnt/data/new 2>/dev/null; echo $?'
$T run --rm --volume=$PWD/data/file:/x -v $PWD/data:/m -v $PWD/more:/m/inner $B cat /x /m/inner/here
$T run --rm -v $PWD/data:/mnt:z $B sh -c 'echo x > /mnt/w; stat -c %u /mnt/w'; stat -c %U data/w; rm data/w
$T run --rm -v /no/such/source:/mnt $B true
$T run --rm -v $PWD/data:relative $B true
$T run --rm -v $PWD/data:/mnt:nonsense $B true
$T run --rm --mount type=bind,src=$PWD/data,dst=/mnt,ro $B sh -c 'cat /mnt/file; touch /mnt/x 2>/w; echo $?'
$T run --rm --mount type=nonsense,dst=/mnt $B true
$T run --rm --tmpfs /a --mount type=tmpfs,destination=/b $B sh -c 'touch /a/x /b/y; ls /a /b'
$T run --rm -w /bin $B pwd
$T run --rm --workdir=/mnt/new -v $PWD/data:/mnt/new $B cat file
VALUE=outside OTHER=outside $T run --rm -e VALUE $B sh -c 'echo [$VALUE][$OTHER]'
$T run --rm -e VALUE=1 --env OTHER='a b' -e FROM_IMAGE=flag $B sh -c 'echo [$VALUE][$OTHER][$FROM_IMAGE]'
$T run --rm --env-file variables -e ONE=flag $B sh -c 'echo [$ONE][$TWO][$FROM_IMAGE]'
$T run --rm --env-file no-such-file $B true
$T run --rm $B sh -c 'echo $PATH:$HOME:$FROM_IMAGE'
$T run --rm -u guest $B sh -c 'id -u; id -g; whoami; echo $HOME'
$T run --rm --user 1234:99 $B sh -c 'id -u; id -g; echo $HOME'
$T run --rm --user guest:root $B sh -c 'id -u; id -g'
$T run --rm --user nobody-here $B true
$T run --rm --user root:nobody-here $B true
$T run --rm $E; $T run --rm $E x 'y z'
$T run --rm --entrypoint /bin/echo $E other
$T run --rm --entrypoint '["/bin/echo","json"]' $E word
$T run --rm --entrypoint '' $E /bin/echo plain
$T run --rm --entrypoint /bin/id $E -u
$T run --rm --network none $B sh -c 'grep -c : /proc/net/dev'
$T run --rm $B sh -c 'test $$ -lt 9; echo $?'
$T run --rm --pid host --uts host --network host $B sh -c 'test $$ -lt 9; echo $?'
$T run --rm --shm-size 1g --name box-$$ --label a=b $B echo no effect
$T run --rm --ulimit nofile=500:600 $B sh -c 'ulimit -n; ulimit -H -n'
$T run --rm --cidfile cid-$$ $B true; wc -c < cid-$$
$T run --rm --pull never $R/lab/no-such:1 true
$T tag $B local/copy:2
$T images --format '{{.Tag}}' | sort
$T run --rm localhost/local/copy:2 echo copy 2>/dev/null || $T run --rm local/copy:2 echo copy
$T tag $R/lab/no-such:1 x:1
$T push -q --tls-verify=false $B $R/lab/pushed:3 > /dev/null; echo $?
$T pull -q $R/lab/pushed:3 > /dev/null; $T run --rm $R/lab/pushed:3 echo pushed
$T save -o saved.tar $B > /dev/null 2>&1; echo $?
$T rmi $B > /dev/null 2>&1; echo $?
$T image exists $B; echo $?
$T load -i saved.tar > /dev/null 2>&1; echo $?
$T run --rm $B echo loaded
$T save $B 2>/dev/null | $T load > /dev/null 2>&1; echo $?
$T build -q -t built:1 context > /dev/null 2>&1; echo $?
$T build -q -t $R/lab/built:1 -f context/Other --build-arg WORD=arg --target last context 2> log > id; echo $?
$T run --rm $R/lab/built:1; $T run --rm built:1
$T build -t bad:1 no-such-context > /dev/null 2>&1; test $? -ne 0; echo $?
$T inspect --type image --format '{{.Config.WorkingDir}} {{.Architecture}} {{.Os}}' $E
$T inspect --format '{{json .Config.Cmd}}' $E
$T rmi $R/lab/no-such:1
$T run
$T no-such-verb
$T run --no-such-flag $B true
""".strip().splitlines()
#: Where Podman prints its help, or exits with another code for the same mistake.
UNLIKE = ("$T no-such-verb",)

_DOCKERFILE = """\
FROM scratch AS last
COPY sh /bin/sh
RUN echo built > /built
CMD ["/bin/sh", "-c", "read -r line < /built; echo $line"]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with files for the command lines."""
    folder = tmp_path_factory.mktemp("shim")
    for name in ("data/inner", "more", "context"):
        (folder / name).mkdir(parents=True)
    (folder / "data/file").write_text("data\n")
    shutil.copy(tool("busybox"), folder / "context/sh")
    (folder / "more/here").write_text("here\n")
    (folder / "variables").write_text("ONE=1\n# comment\nTWO=two words\nFROM_IMAGE=file\n")
    return folder


def started(place: Path, program: str, out: Path, registry: str) -> Lines:
    """Runs all command lines with the program, which has a store of its own."""
    (out / "home").mkdir(parents=True)
    work = out / "work"
    shutil.copytree(place, work)
    box = f"{registry}/lab/box:1"
    (work / "context/Dockerfile").write_text(_DOCKERFILE)
    (work / "context/Other").write_text(f"{_DOCKERFILE}ARG WORD\nRUN echo $WORD > /built\nFROM scratch\n")
    storage = out / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{out}/graph"\nrunroot = "{out}/run"\n')
    # The machine's cgroups may not suit crun, and a network of its own requires /dev/net/tun.
    (out / "containers.conf").write_text('[engine]\nruntime = "runc"\n[containers]\nnetns = "host"\n')
    (out / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(out / "home"),
        "R": registry,
        "B": box,
        "E": f"{registry}/lab/entry:1",
        "BUILDAH_ISOLATION": "chroot",
        "BAREBOAT_STORE": str(out / "store"),
        "CONTAINERS_STORAGE_CONF": str(storage),
        "CONTAINERS_CONF": str(out / "containers.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(out / "registries.conf"),
    }
    return Lines(LINES, program, out, work, environment)


def test_command_lines_do_what_podman_does(place: Path, tmp_path: Path) -> None:
    with real_registry(tmp_path / "registry") as registry:
        upload_images(registry)
        (written,) = shims.write(tmp_path / "shims", ["podman"], force=True, dry_run=False)
        running = {
            out: started(place, program, tmp_path / out, registry.address)
            for out, program in (("theirs", tool("podman")), ("ours", written.path))
        }
        theirs, ours = (lines.answers(hidden=str(tmp_path / out)) for out, lines in running.items())
    subprocess.run([tool("podman"), "unshare", "rm", "-rf", str(tmp_path / "theirs")], check=False)
    for line in UNLIKE:
        (key,) = (key for key in theirs if key.endswith(f": {line}"))
        del theirs[key]
    assert_alike(theirs, ours, codes=())
