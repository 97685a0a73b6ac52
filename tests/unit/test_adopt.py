"""Job files of old jobs: what is understood, what is listed, and what is refused."""

import json
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat import config, jobfile
from bareboat.cli.main import main
from bareboat_adopt import adopt
from bareboat_base.toml import TomlFile

ENVIRONMENT = {"HOME": "/home/ada", "USER": "ada", "SLURM_NNODES": "9"}
GIB = 2**30


def read(text: str, environment: dict[str, str] = ENVIRONMENT) -> adopt.Adopted:
    return adopt.read(Path("/old/job.sh"), text, Path("/old/job.toml"), environment)


def facts(text: str) -> dict[str, Any]:
    """The values of the job file, which is the one that the text says."""
    made = read(text)
    assert made.verdict != "refused", made.notes
    assert tomllib.loads(made.text)["topology"]["nodes"] == made.facts["nodes"]
    return made.facts


def to_fill_in(text: str) -> list[str]:
    """The keys whose values the reader of job files refuses."""
    values = tomllib.loads(text)
    values.update(values.get("topology", {}))
    return [key for key, value in values.items() if value == "?" or (key == "command" and not value)]


def slurm(options: str, command: str) -> str:
    rows = "".join(f"#SBATCH {option}\n" for option in options.split())
    return f"#!/bin/bash\n{rows}{command}\n"


@pytest.mark.parametrize(
    ("options", "command", "nodes", "ranks", "cpus", "gpus"),
    [
        ("-N2 --ntasks-per-node=4 -c8 --gres=gpu:4", "srun ./a", 2, 4, 8, 1),
        ("-N2 -n8", "mpirun ./a", 2, 4, None, None),
        ("-N2 -n8", "mpirun -np 8 --map-by node --mca pml ob1 ./a", 2, 4, None, None),
        ("-n4 --cpus-per-task=2", "srun --mpi=pmix ./a", 1, 4, 2, None),
        ("-n8", "python a.py", 1, 1, 8, None),
        ("-N2 --ntasks-per-node=1 --gpus-per-node=8 -c16",
         "srun torchrun --nproc_per_node=8 --nnodes $SLURM_NNODES a.py", 2, 8, 2, 1),
        ("--gres=gpu:2", "python -m torch.distributed.run --nproc-per-node gpu a.py", 1, 2, None, 1),
        ("--gpus=2 -N1", "deepspeed a.py", 1, 2, None, 1),
        ("--gpus-per-task=2 -n2 -N2", "srun -n $SLURM_NTASKS ./a", 2, 1, None, 2),
        ("--gres=gpu:4 -n1 --cpus-per-gpu=4", "torchrun --nproc_per_node 4 a.py", 1, 4, 4, 1),
        ("-n1 -c8", "mpirun -np 8 --oversubscribe ./a", 1, 8, 1, None),
        ("-N2 -n2 --gres=gpu:1", "horovodrun -np 2 -H a:1,b:1 python a.py", 2, 1, None, 1),
        ("-N4 -n4", "srun -N1 -n1 ./a", 1, 1, None, None),
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
    "#PBS -l mem=16gb,nodes=2:ppn=4\nmpiexec ./a": {"nodes": 2, "mem_per_node_bytes": 8 * GIB},
    "#PBS -l ncpus=16\n#PBS -l wd\n#PBS -l storage=gdata/x\nmpirun -np 16 ./a":
        {"nodes": 1, "ranks_per_node": 16, "cpus_per_rank": 1, "workdir": None,
         "options": ["-l storage=gdata/x"]},
    "#PBS -l ncpus=16\n#PBS -l jobfs=1GB\npython3 a.py": {"ranks_per_node": 1, "cpus_per_rank": 16},
    "#SBATCH--constraint=avx\n./a": {"constraint": "avx"},
}  # fmt: skip


@pytest.mark.parametrize("text", DIRECTIVES)
def test_directives_of_each_scheduler(text: str) -> None:
    found = facts(f"#!/bin/sh\n{text}\n")
    assert {name: found.get(name) for name in DIRECTIVES[text]} == DIRECTIVES[text]


def test_a_job_of_pbs_starts_in_the_home_directory() -> None:
    assert facts("#PBS -l nodes=1\n./a\n")["workdir"] == "/home/ada"
    assert read("#PBS -l nodes=1\n./a\n", {}).verdict == "refused"
    assert "workdir" not in facts("#PBS -l nodes=1\ncd $PBS_O_WORKDIR\n./a\n")


CONTAINERS: dict[str, tuple[dict[str, Any], str]] = {
    "singularity exec -B /data:/d:ro,/out -H /h --env A=1 img/a.sif ./a":
        ({"image": "./img/a.sif", "mounts": ["/data:/d", "/out:rw"], "environment": {"A": "1"}}, "--home"),
    "apptainer run docker://debian:12 ./a":
        ({"image": "debian:12", "entrypoint": True, "command": ["./a"]}, ""),
    "module load singularity/3.8 cuda\nsingularity exec ./a.sif ./a": ({"modules": ["cuda"]}, ""),
    "srun --container-image=nvcr.io#nvidia/a:1 --container-mounts=/d:/d ./a":
        ({"image": "nvcr.io/nvidia/a:1", "mounts": ["/d:rw"], "workdir": "image"}, ""),
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
    assert found["modules"] == ["gcc", "cuda/12"]
    assert found["environment"] == {"A": "x", "B": "ada", "C": "1", "OMP_NUM_THREADS": "4"}
    assert found["environment_from"] == ["API_KEY"]
    assert found["python"] == "./venv/bin/python"
    assert [line for line, _ in found["not_understood"]] == [4, 9, 11]
    assert "s3cr3t" not in read("export API_KEY=s3cr3t\nB_TOKEN=s3cr3t python a.py\n").text


@pytest.mark.parametrize("line", ["conda activate e", "source activate e", ". /opt/conda/bin/activate e"])
def test_an_environment_that_is_activated_by_its_name_is_for_the_shell_that_submits(line: str) -> None:
    found = facts(slurm("-N1", f"X=1\nsource venv/bin/activate\n{line}\npython a.py $X"))
    assert (found["understood"], found["command"]) == ("wholly", ["python", "a.py", "1"])
    assert "python" not in found
    assert [5, "conda activate e: activate it before bareboat submit"] in [
        [number, text.partition(",")[0]] for number, text in found["different"]
    ]


def test_a_variable_that_gets_its_value_after_its_export_has_that_value() -> None:
    found = facts("#SBATCH -N1\nexport A B\nexport C=$C\nexport -n D\nA=1\nC=2\nD=3\n./a\n")
    assert (found["environment"], found["environment_from"]) == ({"A": "1", "C": "2"}, ["B"])


def test_an_array_is_a_sweep() -> None:
    found = facts(slurm("--array=1-5:2%2", "srun python a.py --n $SLURM_ARRAY_TASK_ID --s {x}"))
    assert (found["command"][3:], found["element"]) == (["{element}", "--s", "{{x}}"], [1, 3, 5])
    assert found["environment"] == {"SLURM_ARRAY_TASK_ID": "{element}"}  # the program may read it
    found = facts("#PBS -J 1-3\nexport I=x$PBS_ARRAY_INDEX J='{'\n./a\n")
    assert {found["environment"][name] for name in ("I", "J", "PBS_ARRAY_INDEX")} == {
        "x{element}",
        "{{",
        "{element}",
    }
    made = read(slurm("--array=1-2", "export I=$SLURM_ARRAY_TASK_ID\ncd d$I\n./a && ./b"))
    assert (made.verdict, made.facts["environment"]["I"]) == ("refused", "{element}")
    assert "\\u0000" not in made.text
    found = facts(slurm("--array=1-5:2%2", "srun ./a"))
    notes = " ".join(text for _, text in found["different"])
    assert all(each in notes for each in ("--at-once 2", "numbers 1 to 5 are the points .0 to .2"))


_LONG = "".join(f"A{i + 1}=$A{i}$A{i}\n" for i in range(60)) + "./a $A60"
#: What is not clear -> scripts whose last line, or whose directive, it is.
REFUSED = {
    "the command": (
        "for i in 1 2; do srun ./a; done", "srun ./a\nsrun ./b", "python a.py\npython b.py",
        "python a.py\ncp a b\npython c.py", "env A=1 python prepare.py\nsrun ./a", "srun ./a $1",
        "srun ./a --id $SLURM_JOB_ID", "srun ./a < input", "#SBATCH --input=x\n./a", "./a &", "exit 0\n./a",
        "[ -f x ] && ./a",
        "command -v b && ./a", "test -e x || ./a", "f() { ./a; }\nf", "f() { echo; }\nf", "cat x | ./a",
        "srun ./a | ./b", "eval ./a", "mpirun --new-option x ./a", "torchrun --new-option x a.py",
        "srun -n1 ./a : -n1 ./b", "mpirun -n 1 ./a : -n 1 ./b", "A=/x/<mine>/y\npython $A/a.py",
        "D=/a/b\nN=`basename $D`\n./a $N", "read X < f\n./a $X", "X=1\nsource settings.sh\n./a $X",
        "X=1\n((X++))\n./a $X", "X=1\nfor X in 1 2; do echo $X; done\n./a $X", "./a --k=$API_KEY",
        "A=1 ./a $A", "PWD=/x\n./a $PWD", "E=\nf() { echo; }\n$E", "A=1\nprintf -v A 2\n./a $A",
        "if", "echo only", _LONG, f"A0={'x' * 1000}\n{_LONG}", "./a " + "(" * 50_000,
        'singularity exec --env A="x$OTHER" img.sif ./a', "#SBATCH --array=1-$X\n./a",
        "#SBATCH --array=1-4\n./a $SLURM_ARRAY_TASK_ID > x\n./b", "conda run -n e python a.py", "time -p ./a",
        "#SBATCH --array=" + ",".join(["0-9999999"] * 5000) + "\n./a $SLURM_ARRAY_TASK_ID",
        "#SBATCH --array=1-4\ncd run$SLURM_ARRAY_TASK_ID\n./a $SLURM_ARRAY_TASK_ID",
        "#SBATCH --array=1-4\nsingularity exec -B $SLURM_ARRAY_TASK_ID:/d a.sif ./a $SLURM_ARRAY_TASK_ID",
        "bash -c '",
    ),
    "the ranks": (
        "mpirun --map-by ppr:2:node:PE=8 ./a", "#SBATCH --ntasks-per-gpu=1 --gpus=4\nsrun ./a",
        "srun mpirun ./a", "timeout 5 srun ./a",
        "nice -n 5 mpirun ./a",
        "bash -c 'srun ./a; ./b'",
        "bash -c 'python a.py $SLURM_PROCID'", "sh -e -c 'torchrun a.py'",
        "accelerate launch a.py",
        "srun ch-run -b /d:/d img -- ./a",
        "docker run debian:12 ./a", "shifter --image=a ./a", "jsrun -n 6 -a 1 -g 1 ./a",
        "N=$(cat n)\nsrun -n $N ./a",
        "#SBATCH -N2\n./a", "#SBATCH -N2\nmpirun -n 3 ./a",
    ),
    "the nodes": (
        "srun -N 0 ./a", "#SBATCH -N1-2\nsrun ./a", "#PBS -l nodes=1\n./a",
        "#SBATCH hetjob\n#SBATCH -N2\nsrun ./a",
        "#PJM -L node=4\nmpirun -np 4 ./a", "#BSUB -n 4\nmpirun -np 4 ./a", "#$ -pe smp 4\nmpirun -np 4 ./a",
        "#flux: -n 4\nmpirun -np 4 ./a", "# @ node = 4\nmpirun -np 4 ./a",
    ),
    "the GPUs": (
        "singularity exec --nv a.sif ./a", "torchrun --nproc_per_node=2 a.py",
        "#SBATCH --gres=gpu:x:y:z\n./a",
        "#SBATCH --gpus=3 --ntasks-per-node=2\nsrun ./a",
        "#SBATCH --gpus=4\nexport CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node 2 a.py",
    ),
    "the image": (
        "srun --new-option x ./a", "singularity exec --overlay x.img a.sif ./a",
        "singularity exec library://a/b ./a",
        "singularity exec -B /a:/b:image-src=/ a.sif ./a", "udocker run someones ./a", "udocker run",
        "udocker create --name=c --registry=http://r a:1\nudocker run c ./a",
    ),
    "the working directory": (
        "cd $NOWHERE\n./a", "if true; then cd x; fi\n./a", "pushd x\n./a", "srun --chdir=/x ./a",
        "srun -D /x ./a",
        "#SBATCH --container-image=a/b:1\ncd /x\n./a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", ["./tools/train.sh a b", "bash -e train.sh a", "csh -f /x/train.csh a"])
def test_a_script_inside_that_was_not_read_is_not_understood(program: str) -> None:
    made = read(slurm("-N1 --gpus=4", f"srun --container-image=/x.sqsh --container-mounts=/x:/x {program}"))
    assert made.verdict == "in part"
    assert "is a script that was not read" in made.text


#: Lines that no key of a job file holds; each is named with its number, and kept as a comment.
KEPT = (
    "cat a | sed s/x/y/ > b", "sed -i s/a/b/ c", "sort -o a b", "echo x | tee y", "echo x > y",
    "V=$(python prepare.py)", "echo $(python prepare.py)", "echo `python prepare.py`", "PATH=/x:$PATH",
    "LD_LIBRARY_PATH=/x", "[ -f done ] && exit 0", "[[ -f x ]] && exit", "test -f x || exit 1",
    "if [ -f done ]; then exit 0; fi", "scontrol requeue $SLURM_JOB_ID", "unset A", "set -e", "set -a",
    "set -euo pipefail", "ulimit -s unlimited", "umask 077", "trap 'cp -r out $HOME' EXIT",
    "shopt -s x",
    "until [ -f x ]; do sleep 1; done", "export PATH=/x:$PATH", "export A=$(date)", "module use /x",
    "module swap a b", "source settings.sh", "conda create -n x", "nvidia-smi > log &", "sleep 5",
    "alias a=b",
    "eval $(x)", "read A", "declare -x A=1", "((A++))", "A=(1 2)", "A[1]=2", "exec 2> log", "shift", "wait",
    "udocker rm c", "apptainer pull a.sif docker://a", "A+=1", "date -s x | cat",
    "curl -o x https://a/b", "python -m pip install -U x", "((a = b / (60)))", "[[ -d /x/y ]]",
    "export A=/x:~/y",
)  # fmt: skip


@pytest.mark.parametrize("line", KEPT)
def test_a_line_that_no_key_holds_is_named_and_kept(line: str) -> None:
    made = read(slurm("-N1", f"{line}\nsrun ./a --split test"))
    assert made.verdict == "in part"
    assert made.facts["command"] == ["./a", "--split", "test"]
    assert (made.facts["not_understood"][0][0], made.facts["lines"]["not_understood"]) == (3, [3])
    assert any(note.startswith("line 3: not understood: ") for note in made.notes)
    assert "# - line 3: " in made.text


@pytest.mark.parametrize(
    ("more", "shown"), [("|| true", "|| true"), ("| tee log", "| tee log"), ("&& cp a b", "&& cp a b")]
)
def test_what_follows_the_program_on_its_line_is_named(more: str, shown: str) -> None:
    made = read(slurm("-N1", f"srun ./a {more}"))
    assert (made.facts["command"], made.facts["not_understood"]) == (["./a"], [[3, shown]])


def test_the_lines_of_a_block_are_kept_with_their_numbers() -> None:
    made = read(slurm("-N1", "./a\nif true; then\n  cp a b\nfi"))
    assert "# - lines 4 to 6: if true; then …\n#   4: if true; then\n#   5: cp a b\n#   6: fi" in made.text
    assert any(note.startswith("lines 4 to 6: not understood") for note in made.notes)


def test_options_of_the_shell_that_runs_the_script_are_named() -> None:
    assert read("#!/bin/bash -e\n#SBATCH -N1\n./a\n").facts["not_understood"] == [[1, "#!/bin/bash -e"]]
    assert read("#!/bin/bash -l\n#SBATCH -N1\n./a\n").verdict == "wholly"


@pytest.mark.parametrize("name", ["SINGULARITYENV_A", "APPTAINERENV_A"])
@pytest.mark.parametrize(
    "form", ["export {}=1\nsingularity exec a.sif ./a", "{}=1 singularity exec a.sif ./a"]
)
def test_variables_for_the_container_are_the_job_s(name: str, form: str) -> None:
    assert facts(slurm("-N1", form.format(name)))["environment"] == {"A": "1"}


def test_a_value_of_the_shell_that_submits_is_never_written() -> None:
    environment = {**ENVIRONMENT, "API_KEY": "s3cr3t", "MY_TOKEN": "s3cr3t", "X": "s3cr3t"}
    rows = (
        "export API_KEY", "export API_KEY=$API_KEY", "export A=$MY_TOKEN", "export B=${X}", "A=$X ./a",
        "./a --k=$API_KEY", "echo $X > f", "singularity exec --env X=$X a.sif ./a", "mpirun -x X ./a",
    )  # fmt: skip
    for row in rows:
        made = read(slurm("-N1 -n1", f"{row}\n./b"), environment)
        assert "s3cr3t" not in made.text + made.summary + "".join(made.notes) + json.dumps(made.facts), row
    made = read(slurm("-N1", "export API_KEY=$API_KEY\nexport A=$MY_TOKEN\n./a"), environment)
    assert made.facts["environment_from"] == ["API_KEY"]
    assert made.facts["lines"]["not_understood"] == [4]
    hidden = read(
        "export API_KEY=s3cr3t\ncurl -d MY_TOKEN=s3cr3t x\nif true; then\n A_KEY='s3cr3t x'\nfi\n"
        'if true; then\n B_KEY="x\ns3cr3t"\nfi\nwandb login s3cr3t\nhuggingface-cli x --token s3cr3t\n./a\n'
    )
    assert "s3cr3t" not in hidden.text + "".join(hidden.notes) + json.dumps(hidden.facts)


#: Pieces of scripts, with and without a meaning here.
PIECES = (
    *KEPT, "module load a", "export A=1", "A=1", "cd x", "echo hi", "date; hostname", "srun ./a",
    "mpirun ./a $A",
    "python a.py \\\n  --x 1", "source venv/bin/activate", "conda activate e",
    "for i in 1 2; do\n  echo $i\ndone",
    "cat <<EOF > x\nmpirun a\n\nEOF", "f() {\n  echo\n}", "f", "singularity exec a.sif ./a",
    "export A=1 \\\n  B=$A", "case $A in\n  x) echo;;\nesac", "( cd x; ls )", "exit 0", "./a && ./b",
    "echo 'a\nb'",
    "A=\"x\ny\"", "cp a b \\\n c", "true && \\\n  cp a b", "#SBATCH -n 2", "# a comment", "",
    "torchrun a.py", "udocker create --name=c a:1", "udocker run c", "fi", "'", "if true", "$(",
    "python a.py &",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("IP=$(hostname)\nexport IP\n./a\n", [2, 3]),
        ("export A=1\n. x.sh\n./a", [2, 3]),
        ("./a\ncat <<EOF\nx\nEOF", [3, 4, 5]),
    ],
)
def test_lines_that_depend_on_others_or_end_the_file_are_named(text: str, lines: list[int]) -> None:
    assert read(f"#SBATCH -N1\n{text}").facts["lines"]["not_understood"] == lines


#: What may surround a piece, or stand within it.
AROUND = ("{}", "{} && {}", "{} || {}", "{} | {}", "{}; {}", "{} &", "{} > out", "{} \\\n  {}", "( {} )",
          "{{ {}\n}}", "if {}; then\n{}\nfi", "for i in 1; do\n{}\ndone", "f() {{\n{}\n}}", "{} <<E\n{}\nE",
          "env A=1 {}", "nice -n 5 {}", "time {}", "X=$({})", "case $A in\nx) {} ;;\nesac",
          "bash -c '{}'")  # fmt: skip
PIECE = st.sampled_from(PIECES) | st.text("ab $'\"\\`(){}[]|&;<>#=\n~*-!", max_size=12)
STATEMENT = st.builds(
    lambda around, pieces: around.format(*pieces),
    st.sampled_from(AROUND),
    st.lists(PIECE, min_size=2, max_size=2),
)
OPTIONS = ("--ntasks-per-node=2", "-c 2", "--mem=1G", "--mem-per-cpu=2G", "--mem-per-gpu=1G", "--gres=gpu:2",
           "--cpus-per-gpu=2", "-p x", "--array=1-2", "--mail-type=END")  # fmt: skip
SCRIPTS = st.lists(PIECE | STATEMENT, max_size=8).map("\n".join)


@given(st.lists(st.sampled_from(OPTIONS), max_size=4, unique=True), SCRIPTS)
@settings(max_examples=1000, deadline=None)
def test_every_line_of_a_random_script_is_in_the_job_file_or_named(options: list[str], script: str) -> None:
    """With its number, also where the script is refused, which the reader of job files then refuses, too."""
    text = "\n".join(("#!/bin/bash", "#SBATCH -N1", *(f"#SBATCH {each}" for each in options), script, ""))
    made = read(text)
    lines, noted = made.facts["lines"], re.sub(r"(?m)^.*?(# |$)", "", made.text)
    for number, row in enumerate(text.split("\n"), 1):
        if row.strip(" \\") and not row.lstrip().startswith("#"):
            assert number in {*lines["used"], *lines["not_understood"]}, f"line {number}: {row!r} of\n{text}"
    assert made.verdict != "wholly" or not lines["not_understood"]
    assert made.verdict != "refused" or to_fill_in(made.text)
    for number in {*lines["used"], *lines["not_understood"]}:
        assert re.search(rf"\b{number}\b", noted), text
    for number in range(2, 3 + len(options)):
        assert re.search(rf"\b{number}\b", noted.partition("Lines without")[0]), text
    tomllib.loads(made.text)


@pytest.mark.parametrize(
    ("starts", "python"),
    [
        ("/env/bin/python -u -m torch.distributed.run --nproc_per_node 2", "/env/bin/python"),
        ("/env/bin/torchrun --nproc_per_node 2", "/env/bin/python"),
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


@pytest.mark.parametrize("line", ["source /opt/venv/bin/activate", "conda activate e", "module load a"])
def test_an_environment_that_is_activated_in_a_container_is_named(line: str) -> None:
    made = read(f"{PYXIS}{line}\npython3 a.py\n")
    assert (made.verdict, made.facts["lines"]["not_understood"]) == ("in part", [2])


@pytest.mark.parametrize(("subject", "line"), [(each, line) for each in REFUSED for line in REFUSED[each]])
def test_what_is_not_clear_is_refused_with_its_line(subject: str, line: str) -> None:
    began = time.process_time()
    made = read(slurm("-N1", line))
    assert made.verdict == "refused"
    assert to_fill_in(made.text)
    assert "x01" not in str((made.facts, made.text))  # around a value that is unknown
    assert subject in {text.partition(":")[0] for _, text in made.facts["refused"]}, made.facts["refused"]
    assert any(f"not clear, {subject}: " in note for note in made.notes)
    assert time.process_time() - began < 5


CLEAR: dict[tuple[str, str], dict[str, Any]] = {
    ("--nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --mem=4G", "srun torchrun --nproc_per_node 2 a.py"):
        {"nodes": 2, "ranks_per_node": 2, "cpus_per_rank": 1, "gpus_per_rank": "?",
         "mem_per_node_bytes": 4 * GIB, "command": ["python", "a.py"]},
    ("-N2 --ntasks-per-node=4 --mem-per-cpu=2G", "for i in 1 2; do\nmpirun ./a $i\ndone"):
        {"nodes": 2, "ranks_per_node": 4, "mem_per_node_bytes": 8 * GIB, "command": ["./a", "?"]},
    ("-N2 --mem=4G", "export A=1\nsrun bash -c 'torchrun a.py && ./b'"):
        {"nodes": 2, "ranks_per_node": "?", "mem_per_node_bytes": 4 * GIB, "environment": {"A": "1"}},
    ("-N2 --ntasks-per-node=4", "srun -N1 ./a\nsrun ./b"): {"nodes": 2, "ranks_per_node": "?"},
    ("--array=1-6 -n4 -c1", "L=(1 2)\nsrun ./a ${L[$SLURM_ARRAY_TASK_ID]} $SLURM_ARRAY_TASK_ID"):
        {"nodes": 1, "ranks_per_node": 4, "cpus_per_rank": 1, "command": ["./a", "?", "{element}"]},
    ("-n4", "singularity exec --overlay x a.sif ./a"): {"image": "?", "ranks_per_node": "?", "nodes": "?"},
}  # fmt: skip


@pytest.mark.parametrize(("options", "command"), CLEAR)
def test_what_is_clear_is_written_where_the_rest_is_not(options: str, command: str) -> None:
    made, expected = read(slurm(options, command)), CLEAR[options, command]
    assert (made.verdict, to_fill_in(made.text) != []) == ("refused", True)
    assert {key: made.facts.get(key) for key in expected} == expected
    assert len(made.facts["refused"]) == 1


def test_what_ranks_cannot_have_is_listed() -> None:
    found = facts(slurm("-N2 -c2", "export SLURM_CPU_BIND=cores\nmpirun -n 8 ./a \\").rstrip("\n"))
    assert "2 processors on a node for 4 ranks" in found["not_understood"][0][1]
    assert (found["command"], found["environment"]) == (["./a"], {})
    assert any("SLURM_CPU_BIND" in text for _, text in found["different"])


def test_the_job_file_is_one_that_the_reader_of_job_files_accepts(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "a.py").touch()
    (tmp_path / "job.sh").write_text(
        slurm("-N2 --ntasks-per-node=2 --gres=gpu:2 -t30 --array=0-2 --mail-type=END", "export A='\"x\"'\n"
              f"srun singularity exec -B {tmp_path}/data:/d a.sif python a.py $SLURM_ARRAY_TASK_ID")
    )  # fmt: skip
    target = tmp_path / "job.toml"
    made = adopt.read(*adopt.choose("job.sh", tmp_path), target, ENVIRONMENT)
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
    assert main(["init", "--from", "a.sbatch", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["understood"] == "wholly"
    assert (tmp_path / "a.toml").exists()
    assert main(["init", "--from", "a.sbatch"]) == 2  # the file exists
    (tmp_path / "b.sbatch").write_text(slurm("-N1", "srun ./a $1"))
    assert main(["init", "--from", "."]) == 2
    capsys.readouterr()
    assert main(["init", "--from", "b.sbatch"]) == adopt.REFUSED
    assert "line 3: not clear, the command: " in capsys.readouterr().err
    (tmp_path / "c.sbatch").write_text("./a \x02\n")
    (tmp_path / "Dockerfile").write_text("# x\n\nFROM debian:12\n")
    assert main(["init", "--from", "c.sbatch"]) == main(["init", "--from", "Dockerfile"]) == 2
    (tmp_path / "train.py").write_text("import torch\n\nprint('(')\n")
    capsys.readouterr()
    assert main(["init", "--from", "train.py"]) == 2
    assert "try: bareboat init train.py\n" in capsys.readouterr().err
    assert not (tmp_path / "train.toml").exists()
    assert main(["init", "--from", "none"]) == main(["init", "--from", "a.sbatch", "x.py"]) == 2


@pytest.mark.parametrize(("name", "verdict"), [("CUDA_VISIBLE_DEVICES", "wholly"), ("OTHER", "wholly")])
def test_a_variable_that_is_passed_on_to_a_container_has_no_value_of_its_own(name: str, verdict: str) -> None:
    made = read(slurm("--gpus=1", f'singularity exec --nv --env {name}="${{{name}}}" img.sif ./a'))
    assert name not in tomllib.loads(made.text).get("environment", {})
    assert (made.verdict, name in made.text) == (verdict, True)
    assert made.facts.get("environment_from", []) == ([] if name.startswith("CUDA") else [name])


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_bytes_of_another_encoding_that_the_job_file_needs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sbatch").write_bytes(b"#!/bin/bash\n# Gr\xf6\xdfe\n#SBATCH -N 2\nsrun ./x Gr\xf6\xdfe\n")
    assert main(["init", "--from", "a.sbatch", *more]) == 2
    assert "iconv -f latin1 -t utf-8 a.sbatch" in capsys.readouterr().err
    assert not (tmp_path / "a.toml").exists()
