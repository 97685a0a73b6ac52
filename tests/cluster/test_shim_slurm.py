"""srun, sbatch and salloc with the flags of Pyxis, through shims, on a Slurm without Pyxis.

What the steps check is what Pyxis' own tests check: https://github.com/NVIDIA/pyxis/tree/main/tests
"""

import os
import subprocess
from pathlib import Path

import pytest
from clusters import TREE, Cluster
from images import busybox, pack, upload
from installation import install_for_nodes
from registries import real_registry

VARIABLES = ["PATH=/bin", "FROM_IMAGE=image", "BOTH=image"]
ENTRYPOINT = ["sh", "-c", 'ENTRY=yes exec "$@"', "entry"]
#: name -> the line of a shell, and what it prints.
STEPS = {
    "image": ("srun -N2 --container-image=$I sh -c 'echo $FROM_IMAGE $(pwd)'", "image /tmp image /tmp"),
    "mounts": (
        "srun --container-image=$I --container-mounts=./data:/d:ro,./data/file:/f,tmpfs:/t,'./my data:/m n' "
        "sh -c 'cat /d/file /f; ls \"/m n\"; touch /d/x; echo $?; touch /t/x && ls /t'",
        "data data here 1 x",
    ),
    "absent mount": ("srun --container-image=$I --container-mounts=/no/such:/x true; echo $?", "1"),
    "writable": ("srun --container-image=$I sh -c 'touch /new && ls -d /new'", "/new"),
    "read-only": ("srun --container-image=$I --container-readonly touch /new; echo $?", "1"),
    "environment": (
        "BOTH=shell SHELL_S=shell srun --container-image=$I sh -c 'echo $BOTH $SHELL_S $LANG'",
        "image shell C.UTF-8",
    ),
    "names": ("BOTH=shell srun --container-image=$I --container-env=BOTH sh -c 'echo $BOTH'", "shell"),
    "home": (
        "srun --container-image=$I --container-mount-home sh -c 'cat $HOME/shims-of-slurm/data/file'",
        "data",
    ),
    "no home": ("srun --container-image=$I sh -c 'ls $HOME | wc -l'", "0"),
    "root": (
        "srun --container-image=$I --container-remap-root --container-mount-home "
        "sh -c 'id -u; echo $HOME; cat /root/shims-of-slurm/data/file'",
        "0 /root data",
    ),
    "entrypoint": ("srun --container-image=$I --container-entrypoint sh -c 'echo $ENTRY'", "yes"),
    "workdir": ("srun --container-image=$I --container-workdir=/bin pwd", "/bin"),
    "no workdir": ("srun --container-image=$I --container-workdir=/none true; echo $?", "1"),
    "exit code": ("srun --container-image=$I sh -c 'exit 7'; echo $?", "7"),
    "program": ("srun --container-image=$I no-such-program; echo $?", "1"),
    "namespaces": (
        "test $(srun --container-image=$I --container-unshare=net ls -l /proc/self/ns/net | tail -c 14) "
        "!= $(srun --container-image=$I ls -l /proc/self/ns/net | tail -c 14) && echo other",
        "other",
    ),
    "namespaces one by one": (
        "kind() { srun --container-image=$I $1 busybox readlink /proc/self/ns/$2; }; "
        "for n in net ipc uts; do "
        "test $(kind '' $n) = $(srun readlink /proc/self/ns/$n) && echo shared; "
        "test $(kind --container-unshare=$n $n) != $(kind '' $n) && echo $n; done; "
        "test $(kind --container-unshare=net,ipc,uts uts) != $(kind '' uts) && echo all; "
        "test $(PYXIS_CONTAINER_UNSHARE=ipc kind '' ipc) != $(kind '' ipc) && echo variable; "
        "srun --container-image=$I --container-unshare=net busybox ip link show lo | grep -c ,UP; "
        "srun --container-image=$I --container-unshare=net,foo true 2>&1 | grep -c foo",
        "shared net shared ipc shared uts all variable 1 1",
    ),
    "cancelled": (
        "srun -Q -t 1 --container-image=$I --container-name=gone:create sleep 60 & "
        "until udocker -q ps | grep -q pyxis_gone; do sleep 0.2; done; sleep 1; kill -INT $!; kill -INT $!; "
        "wait; srun --container-name=gone:no_exec echo kept; udocker -q ps | grep -c ' pyxis_[0-9]'",
        "kept 0",
    ),
    "pmi2": (
        "srun -n2 --mpi=pmi2 --container-image=$I "
        "sh -c 'test -S /proc/self/fd/$PMI_FD && echo $PMI_RANK of $PMI_SIZE' | sort",
        "0 of 2 1 of 2",
    ),
    "pmix": (
        "srun -n2 --mpi=pmix --container-image=$I "
        "sh -c 'ls -d $PMIX_SERVER_TMPDIR >/dev/null && test -n $PMIX_MCA_gds && echo $PMIX_RANK' | sort",
        "0 1",
    ),
    "variable": ("PYXIS_CONTAINER_IMAGE=$I srun sh -c 'echo $FROM_IMAGE'", "image"),
    "salloc": ("salloc -Q --container-image=$I srun sh -c 'echo $FROM_IMAGE'", "image"),
    "sbatch": (
        "sbatch -W -o out job.sh one 'two words' >/dev/null; echo $?; cat out",
        "3 script image data job.sh 2 two words",
    ),
    "wrap": (
        "sbatch -W -o out --wrap 'echo \"[$FROM_IMAGE]\"; srun --container-image=$I sh -c "
        "\"echo \\$FROM_IMAGE\"' >/dev/null; cat out",
        "[] image",
    ),
    "wrapped": (
        "sbatch -W -o out --container-image=$I --wrap 'echo $FROM_IMAGE $SLURM_JOB_NAME' >/dev/null; cat out",
        "image wrap",
    ),
    "name": (
        "srun --container-image=$I --container-name=n touch /kept && "
        "srun --container-name=n sh -c 'ls -d /kept; echo $FROM_IMAGE; pwd' && "
        "srun --container-image=$I sh -c 'ls /kept 2>/dev/null | wc -l'; "
        "srun --container-name=n --container-readonly touch /new 2>/dev/null; echo $?",
        "/kept image /tmp 0 1",
    ),
    "one name for ranks": (
        "srun -N1 -n2 --container-image=$I --container-name=ranks:create "
        "sh -c 'touch /r$SLURM_PROCID' && srun -N1 --container-name=ranks sh -c 'ls -d /r[0-9]*'",
        "/r0 /r1",
    ),
    "create": (
        "srun --container-name=n:create true 2>&1 | grep -c already; "
        "srun --container-name=n:exec true 2>&1 | grep -c 'not running'; "
        "srun --container-name=none true 2>&1 | grep -c 'does not exist'",
        "1 1 1",
    ),
    "join": (
        "salloc -Q -N1 -n2 bash -c 'srun -n1 --overlap --container-name=n --container-image=$I "
        "--container-mounts=./data:/joined sh -c \"touch /up; read -r x </joined/end\" & "
        "until srun -n1 --overlap --container-name=n:exec --container-mounts=./data:/other "
        "sh -c \"cat /joined/file; ls /other 2>&1 | wc -l\" 2>warned; do sleep 0.1; done; "
        "srun -n1 --overlap --container-name=n:no_exec sh -c \"ls /joined | wc -l\"; "
        "grep -c ignored warned; echo >data/end; wait'",
        "data 1 0 1",
    ),
    "removed name": (
        "udocker -q rm pyxis_n.c1; srun -w c1 --container-name=n true 2>&1 | grep -c 'does not exist'",
        "1",
    ),
    "save": (
        "srun -n2 -N1 --container-image=$I --container-save=./saved.sqsh "
        "sh -c 'touch /saved$SLURM_PROCID' && "
        "srun --container-image=./saved.sqsh --container-save=$PWD/saved.sqsh --container-entrypoint "
        "sh -c 'ls -d /saved*; echo $FROM_IMAGE $ENTRY; pwd; touch /more' && "
        "srun --container-image=./saved.sqsh ls -d /more; udocker -q ps | grep -c ' pyxis_[0-9]'",
        "/saved0 /saved1 image yes /tmp /more 0",
    ),
    "save on two nodes": (
        "srun -N2 --container-image=$I --container-save=two.sqsh true 2>&1 | grep -c 'not supported on'",
        "2",
    ),
    "job": (
        "id=$(bareboat submit -q -N2 -t 5m --launcher ranks --set shim=always -- ./steps.sh) && "
        "bareboat wait $id >&2; bareboat logs $id | sort",
        "[rank 0] /tmp [rank 0] image [rank 1] /tmp [rank 1] image",
    ),
    "absent image": ("sbatch --container-image=./none --wrap true; echo $?; squeue -h | wc -l", "1 0"),
}  # fmt: skip
SCRIPT = """\
#!/bin/sh
#SBATCH --container-image={image} -N1
#SBATCH --container-mounts={home}/data:/d
echo script $FROM_IMAGE; cat /d/file; echo $SLURM_JOB_NAME $# "$2"
exit 3
"""
#: Of a job of Bareboat.
IN_JOB = """\
#!/bin/sh
singularity exec docker://{reference} sh -c 'echo $FROM_IMAGE'
exec srun -w $SLURMD_NODENAME -N1 -n1 --overlap --container-image='{image}' pwd
"""


@pytest.mark.skipif(bool(TREE), reason="an installation of this machine is none of another system")
def test_steps_and_batch_scripts_do_what_pyxis_does(slurm: Cluster, tmp_path: Path) -> None:
    programs, home = install_for_nodes(slurm.home), slurm.home
    store = {"BAREBOAT_STORE": str(home / "store-of-shims"), "HOME": str(home)}
    with real_registry(tmp_path) as registry:
        box = pack(
            busybox(**{f"bin/{name}": "busybox" for name in ("pwd", "wc", "tail", "id")}),
            Env=VARIABLES, Entrypoint=ENTRYPOINT, WorkingDir="/tmp",
        )  # fmt: skip
        name = upload(registry, box, "a/box:1.0")
        pull = [programs / "bareboat", "image", "pull", "--quiet", "--plain-http", f"docker://{name}"]
        subprocess.run(pull, env={**os.environ, **store}, check=True, timeout=60)
    place = home / "shims-of-slurm"
    (place / "data").mkdir(parents=True)
    (place / "data/file").write_text("data\n")
    os.mkfifo(place / "data/end")
    (place / "my data").mkdir()
    (place / "my data/here").touch()
    image = name.replace("/", "#", 1)
    (place / "job.sh").write_text(SCRIPT.format(image=image.replace("#", "\\#"), home=place))
    (place / "steps.sh").write_text(IN_JOB.format(reference=name, image=image))
    (place / "steps.sh").chmod(0o755)
    lines = [
        "mkdir -p out.d",
        f"bareboat shim --into {place}/shims --tools srun,sbatch,salloc,udocker --force >/dev/null 2>&1",
    ]
    lines += [f"export PATH={place}/shims:$PATH I='{image}'"]
    lines += [
        f"{{ {line}\n}} >out.d/{number} 2>err.{number}" for number, (line, _) in enumerate(STEPS.values())
    ]
    slurm.login(
        ["bash", "-c", "\n".join(lines)], cwd=place, environment={**store, "PWD": str(place)},
        path=f"{programs}:{slurm.path}", timeout_s=300,
    )  # fmt: skip
    different = []
    for number, (what, (_, expected)) in enumerate(STEPS.items()):
        printed = " ".join((place / "out.d" / str(number)).read_text().split())
        if printed != expected:
            different.append(
                f"{what}: {printed!r}, not {expected!r}\n{(place / f'err.{number}').read_text()}"
            )
    assert not different, "\n".join(different)
