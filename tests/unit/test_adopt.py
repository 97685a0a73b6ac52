"""Job files of old jobs: what is understood, what is listed, and what is refused."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bareboat import config, jobfile
from bareboat.cli.main import main
from bareboat_adopt import adopt
from bareboat_adopt.sources import Source
from bareboat_base.toml import TomlFile

ENVIRONMENT = {"HOME": "/home/ada", "USER": "ada", "SLURM_NNODES": "9"}
GIB = 2**30


def read(text: str, environment: dict[str, str] = ENVIRONMENT) -> adopt.Adopted:
    return adopt.read(Source(Path("/old/job.sh"), "script", text), Path("/old/job.toml"), environment)


def facts(text: str) -> dict[str, Any]:
    """The values of the job file, which is the one that the text says."""
    made = read(text)
    assert made.verdict != "refused", made.notes
    assert tomllib.loads(made.text)["topology"]["nodes"] == made.facts["nodes"]
    return made.facts


def slurm(options: str, command: str) -> str:
    rows = "".join(f"#SBATCH {option}\n" for option in options.split())
    return f"#!/bin/bash\n{rows}{command}\n"


@pytest.mark.parametrize(
    ("options", "command", "nodes", "ranks", "cpus", "gpus"),
    [
        ("-N2 --ntasks-per-node=4 -c8 --gres=gpu:4", "srun ./a", 2, 4, 8, 1),
        ("-N2 -n8", "mpirun ./a", 2, 4, None, None),
        ("-N2 -n8", "mpirun -np 8 --map-by ppr:4:node --mca pml ob1 ./a", 2, 4, None, None),
        ("-n4 --cpus-per-task=2", "srun --mpi=pmix ./a", 1, 4, 2, None),
        ("-n8", "python a.py", 1, 1, 8, None),
        ("-N2 --ntasks-per-node=1 --gpus-per-node=8 -c16",
         "srun torchrun --nproc_per_node=8 --nnodes $SLURM_NNODES a.py", 2, 8, 2, 1),
        ("--gres=gpu:2", "python -m torch.distributed.run --nproc-per-node gpu a.py", 1, 2, None, 1),
        ("--gpus=2 -N1", "deepspeed a.py", 1, 2, None, 1),
        ("--gpus-per-task=2 -n2 -N2", "srun -n $SLURM_NTASKS ./a", 2, 1, None, 2),
        ("--gres=gpu:4 -n1 --cpus-per-gpu=4", "accelerate launch --num_processes 4 a.py", 1, 4, 4, 1),
        ("-n1 -c8", "mpirun -np 8 --oversubscribe ./a", 1, 8, 1, None),
        ("-N2 -n2 --gres=gpu:1", "horovodrun -np 2 -H a:1,b:1 python a.py", 2, 1, None, 1),
        ("-N4 -n4", "srun -N1 -n1 ./a", 1, 1, None, None),
        ("--gpus-per-node=4 --ntasks-per-gpu=1 -c8", "srun ./a", 1, 4, 8, 1),
        ("--gpus=8 --ntasks-per-gpu=1 -N2", "srun ./a", 2, 4, None, 1),
        ("-n4 --ntasks-per-gpu=1", "srun ./a", 1, 4, None, 1),
    ],
)  # fmt: skip
def test_ranks_and_their_devices(
    options: str, command: str, nodes: int, ranks: int, cpus: int | None, gpus: int | None
) -> None:
    found = facts(slurm(options, command))
    names = ("nodes", "ranks_per_node", "cpus_per_rank", "gpus_per_rank")
    assert [found.get(name) for name in names] == [nodes, ranks, cpus, gpus]


DIRECTIVES: dict[str, dict[str, Any]] = {
    "#SBATCH -t 1-02:00:00\n#SBATCH -p main -A lab\n#SBATCH --mem-per-cpu=2G -n 4 -N 1\nsrun ./a":
        {"walltime_s": 93600, "partition": "main", "account": "lab", "mem_per_node_bytes": 8 * GIB},
    "#PBS -l select=2:ncpus=8:mpiprocs=4:mem=16gb:ngpus=4,walltime=1:00:00\n#PBS -q gpu\nmpirun ./a":
        {"nodes": 2, "ranks_per_node": 4, "cpus_per_rank": 2, "gpus_per_rank": 1, "walltime_s": 3600,
         "mem_per_node_bytes": 16 * GIB, "partition": "gpu"},
    "#PBS -l nodes=2:ppn=4\n#PBS -N a\ncd $PBS_O_WORKDIR\nmpiexec ./a":
        {"nodes": 2, "ranks_per_node": 4, "name": "a"},
    "#$ -cwd\n#$ -pe smp 4\n#$ -l h_rt=0:30:00,h_vmem=2G\npython a.py":
        {"cpus_per_rank": 4, "walltime_s": 1800, "mem_per_node_bytes": 8 * GIB},
    "#BSUB -n 8\n#BSUB -R \"span[ptile=4]\"\n#BSUB -W 2:00\n#BSUB -q q\nmpirun ./a":
        {"nodes": 2, "ranks_per_node": 4, "walltime_s": 7200, "partition": "q"},
    "#PBS -l ncpus=16\n#PBS -l wd\n#PBS -l storage=gdata/x\nmpirun ./a":
        {"nodes": 1, "ranks_per_node": 16, "cpus_per_rank": 1, "workdir": None,
         "options": ["-l storage=gdata/x"]},
    "#PBS -l ncpus=16\n#PBS -l jobfs=1GB\npython3 a.py": {"ranks_per_node": 1, "cpus_per_rank": 16},
    "#PBS -l nodes=1\n#PBS -v CONTAINER_IMAGE=a/b:1\ncd $PBS_O_WORKDIR\n./a":
        {"image": "a/b:1", "workdir": None, "environment": {}, "command": ["./a"]},
    "#SBATCH--constraint=avx\n./a": {"constraint": "avx"},
    "#flux: -N 2 -n 8\n#flux: -t 30m\nmpirun ./a": {"nodes": 2, "ranks_per_node": 4, "walltime_s": 1800},
}  # fmt: skip


@pytest.mark.parametrize("text", DIRECTIVES)
def test_directives_of_each_scheduler(text: str) -> None:
    found = facts(f"#!/bin/sh\n{text}\n")
    assert {name: found.get(name) for name in DIRECTIVES[text]} == DIRECTIVES[text]


def test_a_job_of_pbs_starts_in_the_home_directory() -> None:
    assert facts("#PBS -l nodes=1\n./a\n")["workdir"] == "/home/ada"
    assert "workdir" not in facts("#PBS -l nodes=1\ncd $PBS_O_WORKDIR\n./a\n")


CONTAINERS: dict[str, tuple[dict[str, Any], str]] = {
    "singularity exec -B /data:/d:ro,/out -H /h --env A=1 img/a.sif ./a":
        ({"image": "./img/a.sif", "mounts": ["/data:/d", "/out:rw"], "environment": {"A": "1"}}, "--home"),
    "apptainer run docker://debian:12 ./a":
        ({"image": "debian:12", "entrypoint": True, "command": ["./a"]}, ""),
    "docker run --rm -v $PWD:/w -w /w -e A=b --shm-size 1g debian:12 ./a":
        ({"image": "debian:12", "mounts": [".:/w:rw"], "environment": {"A": "b"}, "entrypoint": True}, ""),
    "docker run debian:12": ({"image": "debian:12", "workdir": "image"}, ""),
    "srun --container-image=nvcr.io#nvidia/a:1 --container-mounts=/d:/d ./a":
        ({"image": "nvcr.io/nvidia/a:1", "mounts": ["/d:rw"], "workdir": "image"}, ""),
    "shifter --image=docker:a/b:1 -V /d:/e --clearenv ./a":
        ({"image": "a/b:1", "mounts": ["/d:/e:rw"], "command": ["./a"]}, ""),
    "#SBATCH --image=a/b:1 --volume=/d:/e;/f:/g:ro\nsrun -n2 shifter ./a":
        ({"image": "a/b:1", "mounts": ["/d:/e:rw", "/f:/g"], "ranks_per_node": 2, "workdir": None}, ""),
    "#SBATCH --image=a/b:1\n./a": ({"image": None, "command": ["./a"]}, "--image a/b:1"),
    "udocker create --name=c debian:12\nudocker run -v /d c ./a":
        ({"image": "debian:12", "mounts": ["/d:rw"]}, ""),
}  # fmt: skip


@pytest.mark.parametrize("line", CONTAINERS)
def test_containers(line: str) -> None:
    found = facts(slurm("-N1", line))
    expected, unread = CONTAINERS[line]
    assert {name: found.get(name) for name in expected} == expected
    assert [note for _, note in found["not_understood"]] == [
        note for _, note in found["not_understood"] if unread in note and unread
    ]


def test_a_batch_script_in_a_container_of_pyxis() -> None:
    found = facts(
        slurm("-N1 --container-image=a/b:1 --container-workdir=/w --container-mounts=/old:/w", "python a.py")
    )
    assert (found["image"], found["command"], found.get("workdir")) == ("a/b:1", ["python", "a.py"], None)


def test_the_environment_of_a_script() -> None:
    found = facts(
        "#SBATCH -N1 -c4\nmodule purge\nml gcc cuda/12\nmodule unload gcc\nsource venv/bin/activate\n"
        "export A=x B=$USER\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nexport API_KEY=s3cr3t\n"
        "export PATH=/x:$PATH\nC=1 python a.py\nexport LATE=1\n"
    )
    assert found["modules"] == ["cuda/12"]
    assert found["environment"] == {"A": "x", "B": "ada", "C": "1"}
    assert found["environment_from"] == ["API_KEY"]
    assert found["python"] == "./venv/bin/python"
    assert [note for _, note in found["not_understood"]] == [
        "export PATH: the container has paths of its own"
    ]
    assert "s3cr3t" not in read("export API_KEY=s3cr3t\nB_TOKEN=s3cr3t python a.py\n").text


def test_an_array_is_a_sweep() -> None:
    found = facts(slurm("--array=1-5:2%2", "srun python a.py --n $SLURM_ARRAY_TASK_ID --s {x}"))
    assert (found["command"][3:], found["element"]) == (["{element}", "--s", "{{x}}"], [1, 3, 5])
    assert any("--at-once 2" in text for _, text in found["different"])


def test_programs_of_one_process_that_follow_each_other_are_one_command() -> None:
    found = facts("#SBATCH -N1\npython a.py 'x y'\necho between\npython b.py && ./c\n")
    assert found["command"] == ["bash", "-c", "python a.py 'x y'\npython b.py && ./c"]


REFUSED = {
    "for i in 1 2; do srun ./a; done": "the command: a for starts srun",
    "srun ./a\nsrun ./b": "several programs",
    "python a.py\ncp a b\npython c.py": "several programs, with others between",
    "python a.py\nexport A=1\npython c.py": "several programs, with others between",
    "srun ./a $1": "arguments are unknown",
    "srun ./a --id $SLURM_JOB_ID": "SLURM_JOB_ID is not set here",
    "srun ./a < input": "input is redirected",
    "./a <<EOF\nx\nEOF": "input is redirected",
    "./a &": "runs in the background",
    "[ -f x ] && ./a": "depends on what another command returns",
    "command -v b && ./a": "depends on what another command returns",
    "test -e x || ./a": "depends on what another command returns",
    "f() { ./a; }\nf": "function of the script",
    "cat x | ./a": "reads what another one prints",
    "eval ./a": "eval",
    "cd $NOWHERE\n./a": "the working directory",
    "if true; then cd x; fi\n./a": "the working directory: cd in an if",
    "srun --new-option x ./a": "the command",
    "mpirun --new-option x ./a": "--new-option is not known",
    "torchrun --new-option x a.py": "--new-option is not known",
    "srun mpirun ./a": "both start ranks",
    "singularity exec --overlay x.img a.sif ./a": "the image: --overlay",
    "singularity exec library://a/b ./a": "the image: library://",
    "singularity exec --nv a.sif ./a": "the GPUs",
    "udocker run someones ./a": "the image: someones",
    "docker run -d debian:12 ./a": "the image: --detach",
    "docker run -w /inside debian:12 ./a": "the working directory",
    "srun ch-run -b /d:/d img -- ./a": "the image: ch-run -b is not read",
    "enroot start img ./a": "the image: enroot start is not read",
    "#PJM -L node=4\nmpirun -np 4 ./a": "the nodes: directives of a scheduler",
    "# @ node = 4\nmpirun -np 4 ./a": "the nodes: directives of a scheduler",
    "jsrun -n 6 -a 1 -g 1 ./a": "the ranks: jsrun",
    "mpirun.lsf ./a": "the ranks: mpirun.lsf",
    "sudo docker start c": "the image: docker start is not read",
    "shifter ./a": "the image: shifter without",
    "#SBATCH hetjob\n#SBATCH -N2\nsrun ./a": "the nodes: hetjob",
    "torchrun --nproc_per_node=2 a.py": "the GPUs",
    "A=/x/<mine>/y\npython $A/a.py": "placeholder, or redirected|redirections",
    "if": "not bash",
    "echo only": "no program was found",
}


@pytest.mark.parametrize("program", ["./tools/train.sh a b", "bash -e train.sh a", "csh -f /x/train.csh a"])
def test_a_script_inside_that_was_not_read_is_not_understood(program: str) -> None:
    made = read(slurm("-N1 --gpus=4", f"srun --container-image=/x.sqsh --container-mounts=/x:/x {program}"))
    assert made.verdict == "in part"
    assert "is a script that was not read" in made.text


def test_an_array_is_named_where_no_program_was_understood() -> None:
    assert "line 2: an array of 3 elements" in read(slurm("--array=1-3", "eval ./a")).text


@pytest.mark.parametrize(
    ("starts", "python"),
    [
        ("/env/bin/python -u -m torch.distributed.run --nproc_per_node 2", "/env/bin/python"),
        ("/env/bin/torchrun --nproc_per_node 2", "/env/bin/python"),
        ("/env/bin/accelerate launch --num_processes 2", "/env/bin/python"),
        ("/env/bin/deepspeed --num_gpus 2", "/env/bin/python"),
        ("python3.12 -m torch.distributed.run --nproc_per_node 2", "python3.12"),
        ("torchrun --nproc_per_node 2", "python"),
    ],
)
def test_the_interpreter_of_what_starts_ranks_stays(starts: str, python: str) -> None:
    """In a container `python` is the image's."""
    found = facts(slurm("-N1 --gres=gpu:2", f"srun -n1 singularity exec --nv a.sif {starts} a.py"))
    assert (found["command"], found["ranks_per_node"]) == ([python, "a.py"], 2)


PYXIS = "#SBATCH --container-image=a/b:1\n"


def test_an_environment_that_is_activated_in_a_container_is_the_images() -> None:
    found = facts(f"{PYXIS}source /opt/venv/bin/activate\npython3 a.py\n")
    assert (found["command"], found["image"]) == (["/opt/venv/bin/python3", "a.py"], "a/b:1")
    assert "python" not in found
    for line in ("source /opt/venv/bin/activate\n./a", "conda activate e\npython a.py"):
        reasons = [text for _, text in read(f"{PYXIS}{line}\n").facts["refused"]]
        assert any("an environment of the image is activated" in text for text in reasons)


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_not_clear_is_refused_with_its_reason(line: str) -> None:
    made = read(slurm("-N1", line))
    assert made.verdict == "refused"
    assert "command" not in tomllib.loads(made.text)
    assert any(re.search(REFUSED[line], text) for _, text in made.facts["refused"]), made.facts["refused"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("-N1-2", "the nodes"), ("-N2", "the ranks: 2 nodes are requested"),
        ("-N2 --gres=gpu:x:y:z", "the GPUs"),
        ("-N1 --gpus=3 --ntasks-per-node=2", ""), ("-N1 --array=1-$X", "the command"),
        ("-N1 --array=1-4", "an array whose program"),
    ],
)  # fmt: skip
def test_requests_that_are_not_clear(options: str, reason: str) -> None:
    command = "srun ./a" if not reason else "./a"
    made = read(slurm(options, command))
    assert made.verdict == "refused"
    assert any(reason in text for _, text in made.facts["refused"])


def test_variables_of_another_job_are_not_used() -> None:
    assert read("srun -N$SLURM_NNODES ./a\n").verdict == "refused"


def test_what_ranks_cannot_have_is_listed() -> None:
    found = facts(slurm("-N2 -c2", "export SLURM_CPU_BIND=cores\nmpirun -n 8 ./a \\").rstrip("\n"))
    assert "2 processors on a node for 4 ranks" in found["not_understood"][0][1]
    assert (found["command"], found["environment"]) == (["./a"], {})
    assert any("SLURM_CPU_BIND" in text for _, text in found["different"])


def test_lines_without_effect_on_the_job_are_named() -> None:
    made = read("#SBATCH -N1\necho x\nmkdir -p out\nif true; then echo y; fi\n./a\nrm -r tmp\n")
    assert made.verdict == "in part"
    assert [line for line, _ in made.facts["not_understood"]] == [3, 6]
    assert "Left out, since it only prints, checks or waits: lines 2, 4." in made.text


def test_the_job_file_is_one_that_the_reader_of_job_files_accepts(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "a.py").touch()
    (tmp_path / "job.sh").write_text(
        slurm("-N2 --ntasks-per-node=2 --gres=gpu:2 -t30 --array=0-2 --mail-type=END", "export A='\"x\"'\n"
              f"srun singularity exec -B {tmp_path}/data:/d a.sif python a.py $SLURM_ARRAY_TASK_ID")
    )  # fmt: skip
    target = tmp_path / "job.toml"
    made = adopt.read(adopt.choose(str(tmp_path), tmp_path), target, ENVIRONMENT)
    settings = config.resolve({}, folder=None, environment={"HOME": str(tmp_path)}, with_site=False)
    job = jobfile.job_of(TomlFile(target, made.text.encode()), settings, folder=tmp_path)
    assert (job.topology.nodes, job.topology.ranks_per_node, job.topology.gpus_per_rank) == (2, 2, 1)
    assert (job.walltime_s, job.environment["A"], job.image) == (1800, '"x"', "./a.sif")
    assert job.sweep is not None
    assert [point for (point,) in job.sweep.points] == ["0", "1", "2"]
    assert job.scheduling.options == ("--mail-type=END",)


def test_the_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.sbatch").write_text(slurm("-N1", "srun ./a"))
    assert main(["init", "--from", ".", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["understood"] == "wholly"
    assert (tmp_path / "a.toml").exists()
    assert main(["init", "--from", "a.sbatch"]) == 2  # the file exists
    (tmp_path / "b.sbatch").write_text(slurm("-N1", "srun ./a $1"))
    assert main(["init", "--from", "."]) == 2
    assert "2 files that may be the old job: a.sbatch, b.sbatch" in capsys.readouterr().err
    assert main(["init", "--from", "b.sbatch"]) == adopt.REFUSED
    assert "line 3: not clear, the command: the script's arguments are unknown" in capsys.readouterr().err
    assert main(["init", "--from", "none"]) == main(["init", "--from", "a.sbatch", "x.py"]) == 2


def test_a_dockerfile_is_an_image_and_no_job(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "Dockerfile").write_text("FROM debian:12\nCMD ./a\n")
    made = adopt.read(adopt.choose("net", tmp_path), tmp_path / "net.toml", ENVIRONMENT)
    assert made.facts["image"] == "net"
    assert any("bareboat image build -t net net" in text for _, text in made.facts["different"])


@pytest.mark.parametrize(("name", "verdict"), [("CUDA_VISIBLE_DEVICES", "wholly"), ("OTHER", "in part")])
def test_a_variable_that_is_passed_on_to_a_container_has_no_value_of_its_own(name: str, verdict: str) -> None:
    made = read(slurm("--gpus=1", f'singularity exec --nv --env {name}="${{{name}}}" img.sif ./a'))
    assert name not in tomllib.loads(made.text).get("environment", {})
    assert (made.verdict, name in made.text) == (verdict, True)


def test_an_unknown_value_is_not_in_the_file() -> None:
    made = read(slurm("-n1", 'singularity exec --env A="x$OTHER" img.sif ./a'))
    assert made.verdict == "refused"
    assert "environment" not in tomllib.loads(made.text)


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_bytes_of_another_encoding_that_the_job_file_needs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sbatch").write_bytes(b"#!/bin/bash\n# Gr\xf6\xdfe\n#SBATCH -N 2\nsrun ./x Gr\xf6\xdfe\n")
    assert main(["init", "--from", "a.sbatch", *more]) == 2
    assert "iconv -f latin1 -t utf-8 a.sbatch" in capsys.readouterr().err
    assert not (tmp_path / "a.toml").exists()
