"""Locks: written and read back, the code of a job, secrets, and what cannot be a lock."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import make_job
from hypothesis import given
from hypothesis import strategies as st
from locked import (
    make_code,
    make_file,
    make_lock,
    make_locked_image,
    make_results,
)
from msgspec import UNSET
from tools import output

from bareboat.runs import code, repository
from bareboat_base.errors import ImageError, StoreError, UsageError
from bareboat_base.host_files import Mount
from bareboat_images.store import Store
from bareboat_study import matching, patterns
from bareboat_study.reproduction import data, machines, making, reading, retrieval, secrets
from bareboat_study.reproduction.document import MOST_BYTES, Lock


def parse(lock: Lock) -> Lock:
    return reading.parse(making.written(lock), what="run.lock")


@pytest.mark.parametrize(
    "lock",
    [
        make_lock(),
        make_lock(image=None, code=None, plan=None, machine=None, data=(), nodes=()),
        make_lock(results=make_results(metrics={"loss": "nan"})),
        make_lock(job=make_job(command=("python", "b\udcffse.py"))),
    ],
    ids=["run", "bare", "not finite", "bytes"],
)
def test_a_lock_is_read_as_it_was_written(lock: Lock) -> None:
    assert parse(lock) == lock


def test_equal_locks_have_equal_bytes() -> None:
    assert making.written(make_lock()) == making.written(parse(make_lock()))


def changed(change: Callable[[dict[str, Any]], None]) -> bytes:
    document = json.loads(making.written(make_lock()))
    change(document)
    return json.dumps(document).encode()


def put(*keys: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("bareboat_lock", value=2), "of version 2"),
        (put("bareboat_lock", value=True), "no bareboat_lock"),
        (put("job", "shape", value="round"), "unknown key job.shape"),
        (put("future", value=1), "unknown key future"),
        (put("kind", value="sweep"), "its kind is 'sweep'"),
        (put("kind", value="study"), "its kind is 'study'"),
        (put("withheld", value=["A B"]), "not the name of an environment variable"),
        (put("image", "base", value="x; y"), "not a digest"),
        (put("results", "exit_code", value="0"), "results.exit_code"),
        (put("job", "topology", "nodes", value=0), "topology.nodes"),
        (put("image", "digest", value="../../etc"), "not a digest"),
        (put("data", 0, "path", value="data"), "not absolute"),
        (put("data", 0, "sha256", value="x"), "not a SHA-256"),
        (put("patterns", value={"loss": "("}), "not a regular expression"),
        (put("patterns", value={"loss": "a"}), "has 0 groups"),
        (put("code", "repository", "commit", value="--help"), "not the digest of a commit"),
        (put("code", "repository", "below", value="../x"), "outside of the repository"),
        (put("code", "files", 0, "sha256", value="zz"), "not a SHA-256"),
        (put("code", "files", 0, "size_bytes", value=-1), "negative"),
    ],
)
def test_what_cannot_be_is_refused(change: Callable[[dict[str, Any]], None], said: str) -> None:
    with pytest.raises(UsageError) as error:
        reading.parse(changed(change), what="run.lock")
    assert said in error.value.message
    assert error.value.remedy


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "..", "/etc/passwd", "a/../b", "../a", "a//b", "a/", ".git/config", "a/.GIT/hooks/x", "a\\b",
        "a\nb", "a\x1b[2J", "x" * 1001,
    ],
)  # fmt: skip
def test_no_file_of_the_code_lies_outside_of_it(path: str) -> None:
    with pytest.raises(UsageError, match="lies outside"):
        reading.parse(changed(put("code", "files", 0, "path", value=path)), what="run.lock")


@given(st.text(max_size=60))
def test_inner_paths_stay_inside(path: str) -> None:
    if reading.is_inner(path):
        place = Path("/top").joinpath(path)
        assert Path("/top") in place.parents
        assert ".git" not in place.parts


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"1", b"null", b"[" * 100_000, b"\xff", b"{}"])
def test_other_files_are_no_locks(text: bytes) -> None:
    with pytest.raises(UsageError, match="is not a lock"):
        reading.parse(text, what="run.lock")


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with open(path, "wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(UsageError, match="is larger than"):
        reading.read(path)


# --- secrets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("curl", "--token", "abc123"),
        ("train", "--api-key=abc"),
        ("train", "--password", "x"),
        ("train", "https://ada:geheim@example.org/x"),
        ("train", "ghp_" + "a" * 36),
        ("train", "--wandb_api_key", "0123abcd"),
        ("train", "hf_" + "A" * 30),
    ],
)
def test_secrets_of_a_command_are_found_and_not_shown(command: tuple[str, ...]) -> None:
    found = secrets.found_in(command)
    assert found is not None
    assert "abc" not in found
    assert "geheim" not in found


@pytest.mark.parametrize(
    "command",
    [
        ("train", "--max-tokens", "512"),
        ("train", "--tokenizer", "gpt2"),
        ("train", "--max_token_length=8", "--num-keys=3"),
        ("sort", "--key", "2"),
        ("python", "train.py", "--epochs", "3"),
        ("git", "clone", "https://example.org/x.git"),
        ("train", "--token"),
    ],
)
def test_other_words_are_no_secrets(command: tuple[str, ...]) -> None:
    assert secrets.found_in(command) is None


# --- patterns -----------------------------------------------------------------------------------------------


def test_patterns_find_all_numbers_in_order() -> None:
    output = "step 1 loss 0.5\nstep 2 loss 2.5e-1\nstep 3 loss nan\ntotal images/sec: 1,234.5\n"
    wanted = patterns.of_options(["loss=loss (\\S+)", "speed=images/sec: ([0-9.,]+)"])
    found = {name: patterns.finite(matching.texts(name, each, output)) for name, each in wanted.items()}
    assert found == {"loss": [0.5, 0.25], "speed": [1234.5]}


@pytest.mark.parametrize(
    "text", ["loss", "=x(1)", "loss=", "1a=(x)", "loss=(", "loss=(a)(b)", "l=" + "(a)" * 300]
)
def test_wrong_patterns_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        patterns.of_options([text])
    assert "--metric" in error.value.message


# --- code ---------------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=Ada", "-c", "user.email=a@example.org")
    return output("git", *who, *words, cwd=folder).strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "inner").mkdir(parents=True)
    (made / "train.py").write_text(
        "import numpy\nfrom model import Net, other\nimport inner.part as p, json\n"
    )
    (made / "model.py").write_text("from inner import part\nfrom . import missing\n")
    (made / "inner" / "__init__.py").write_text("")
    (made / "inner" / "part.py").write_text("X = 1\n")
    (made / "unused.py").write_text("")
    (made / "settings.yaml").write_text("a: 1\n")
    return made


def job_in(folder: Path, *command: str) -> Any:
    return make_job(command=command, workdir=str(folder))


def test_files_that_the_command_names_and_imports_are_recorded(project: Path) -> None:
    found = code.look(
        job_in(project, "python", "train.py", "--config=settings.yaml", "missing.txt", "/etc/passwd")
    )
    assert found is not None
    assert {file.path for file in found.files} == {
        "train.py", "settings.yaml", "model.py", "inner/part.py", "inner/__init__.py",
    }  # fmt: skip
    assert all(file.text is not None and len(file.sha256) == 64 for file in found.files)


def test_imports_over_several_lines_are_recorded(project: Path) -> None:
    (project / "wide.py").write_text("from inner import (  # noqa\n    part,\n)\nimport \\\n    model\n")
    found = code.look(job_in(project, "python", "wide.py"))
    assert found is not None
    assert {"wide.py", "model.py", "inner/part.py"} <= {file.path for file in found.files}


def test_a_module_is_found_by_its_name(project: Path) -> None:
    found = code.look(job_in(project, "python", "-m", "inner.part"))
    assert found is not None
    assert [file.path for file in found.files] == ["inner/part.py"]


def test_packages_that_the_code_imports_are_known(project: Path) -> None:
    lines = "import os, numpy.linalg as la\nfrom lightning.pytorch import Trainer\nfrom . import own\n"
    (project / "inner" / "part.py").write_text(lines)
    found = code.facts(job_in(project, "python", "train.py"), "/home/ada")
    assert isinstance(found.imports, tuple)
    assert {"os", "numpy", "lightning"} <= set(found.imports)
    assert (found.uses("lightning"), found.uses("ray")) == (True, False)
    unknown = code.facts(job_in(project, "sh", "-c", "true"), "/home/ada")
    assert (unknown.imports, unknown.uses("ray")) == (UNSET, True)


@pytest.mark.parametrize(
    ("source", "words", "found"),
    [
        ("import torch\nnet = torch.compile(net)\n", (), True),
        ("from torch import nn, compile\n", (), True),
        ("import triton\n", (), True),
        ("import torch\n", ("--torch_compile",), True),
        ("import torch\nre.compile('x')\n", (), False),
    ],
)
def test_code_that_compiles_is_known(project: Path, source: str, words: tuple[str, ...], found: bool) -> None:
    (project / "inner" / "part.py").write_text(source)
    assert code.facts(job_in(project, "python", "train.py", *words), "/home/ada").compiles == found
    assert not code.facts(job_in(project, "python", "unused.py"), "/home/ada").compiles


def test_what_the_container_will_not_show_is_known(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "_OF_CONTAINERS", re.compile("/usr(/.*)?"))  # the project lies in /tmp
    home = tmp_path / "home"
    for name in ("home/shared_data", "home/sets/x", "env"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (project / "data").symlink_to(home / "shared_data")
    (project / "venv").symlink_to(tmp_path / "env")
    (project / "gone").symlink_to(tmp_path / "nowhere")
    (project / "log").symlink_to("/dev/null")
    (project / "inner" / "part.py").write_text(
        f"A = '{home}/sets/x'; B = \"../home\"; C = '/usr/bin'; D = '{home}/missing'; E = 'inner/part.py'\n"
        "subprocess.run(['sbatch', 'next.sh'])\n"
    )
    shown = code.facts(job_in(project, "python", "train.py", "../env"), str(tmp_path / "other"))
    assert shown.submits == ("sbatch", "inner/part.py")
    assert dict(shown.outside) == {
        str(home / "shared_data"): "the link data leads to it",
        str(tmp_path / "env"): "the command names it",
        str(home / "sets" / "x"): "inner/part.py names it",
        str(home): "inner/part.py names it",
    }
    assert code.facts(job_in(project, "python", "unused.py"), str(home)).submits is None


def test_links_out_of_the_directory_are_not_followed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim")
    (project / "link").symlink_to(tmp_path / "secret")
    found = code.look(job_in(project, "cat", "link", "../secret"))
    assert found is not None
    assert found.files == ()


def test_large_and_binary_files_are_recorded_without_their_content(project: Path) -> None:
    (project / "weights.bin").write_bytes(b"\0\xff" * 100)
    with open(project / "large", "wb") as stream:
        stream.truncate(64 << 20)
    found = code.look(job_in(project, "train", "weights.bin", "large"))
    assert found is not None
    (weights, large) = found.files
    assert (weights.text, len(weights.sha256)) == (None, 64)
    assert (large.text, large.sha256, large.size_bytes) == (None, "", 64 << 20)


def test_the_repository_is_recorded_with_what_changed(project: Path) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    git(project, "remote", "add", "origin", "https://ada:geheim@example.org/ada/digits.git")
    commit = git(project, "rev-parse", "HEAD")
    clean = repository.find(project)
    assert clean is not None
    assert clean.repository.commit == commit
    assert clean.repository.remote == "https://example.org/ada/digits.git"
    assert clean.repository.difference == ""
    (project / "model.py").write_text("X = 2\n")
    git(project, "add", "model.py")
    (project / "train.py").write_text("X = 3\n")
    found = repository.find(project / "inner")
    assert found is not None
    assert found.repository.below == "inner"
    assert found.repository.branch == "main"
    assert "+X = 2" in (found.repository.difference or "")
    assert "+X = 3" in (found.repository.difference or "")
    git(project, "pack-refs", "--all")
    assert repository.find(project).repository.commit == commit  # type: ignore[union-attr]
    git(project, "checkout", "-q", "--detach")
    detached = repository.find(project)
    assert detached is not None
    assert (detached.repository.commit, detached.repository.branch) == (commit, "")


def test_worktrees_and_submodules_are_repositories(project: Path, tmp_path: Path) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    git(project, "worktree", "add", "-q", str(tmp_path / "other"), "-b", "other")
    (tmp_path / "other" / "train.py").write_text("X = 3\n")
    found = repository.find(tmp_path / "other")
    assert found is not None
    assert found.repository.branch == "other"
    assert found.repository.commit == git(project, "rev-parse", "HEAD")
    assert "+X = 3" in (found.repository.difference or "")


def test_no_program_of_the_repositorys_configuration_starts(project: Path, tmp_path: Path) -> None:
    """It would run outside of any container."""
    git(project, "init", "-q")
    (project / ".gitattributes").write_text("* filter=evil diff=evil\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    trace = tmp_path / "started"
    evil = f"sh -c 'touch {trace}; cat'"
    for name in ("filter.evil.clean", "diff.evil.textconv", "diff.external", "core.fsmonitor", "core.pager"):
        git(project, "config", name, evil)
    (project / "train.py").write_text("X = 3\n")
    found = repository.find(project)
    assert found is not None
    assert "+X = 3" in (found.repository.difference or "")
    assert not trace.exists()


def test_the_users_own_git_is_not_disturbed(project: Path) -> None:
    """A refreshed index is written under a lock, beside which `git add` fails."""
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    os.utime(project / "train.py", (1, 1))
    index = project / ".git" / "index"
    before = (index.stat().st_ino, index.read_bytes())
    found = repository.find(project)
    assert found is not None
    assert found.repository.difference == ""
    assert (index.stat().st_ino, index.read_bytes()) == before
    (project / ".git" / "index.lock").touch()  # the user's own git is at work
    found = repository.find(project)
    assert found is not None
    assert found.repository.difference == ""


def test_a_large_difference_is_not_kept(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    (project / "train.py").write_text("x = 1\n" * 100_000)
    found = repository.find(project)
    assert found is not None
    assert found.repository.difference is None
    assert "not recorded" in found.notes[0]


def test_a_directory_without_repository_or_commit_has_none(project: Path) -> None:
    assert repository.find(project) is None
    git(project, "init", "-q")
    assert repository.find(project) is None
    (project / ".git" / "HEAD").write_text("ref: ../../../../etc/passwd\n")
    assert repository.find(project) is None


# --- data ---------------------------------------------------------------------------------------------------


def test_checksums_of_directories_depend_on_names_and_contents_only(tmp_path: Path) -> None:
    found = []
    for number, names in enumerate((("a", "b"), ("b", "a"), ("a", "c"))):
        folder = tmp_path / str(number)
        (folder / "inner").mkdir(parents=True)
        for name in names:
            (folder / "inner" / name).write_text("same")
        found.append(data.checksum(str(folder)))
    assert found[0].sha256 == found[1].sha256 != found[2].sha256
    digest = hashlib.sha256(b"same").hexdigest()
    listed = "".join(f"file\0inner/{name}\0{4} {digest}\n" for name in ("a", "b"))
    assert found[0].sha256 == hashlib.sha256(listed.encode()).hexdigest()
    assert (found[0].files, found[0].size_bytes, found[0].is_folder) == (2, 8, True)


def test_data_that_changed_after_the_run_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("x")
    assert data.checksum(str(path), began_epoch_s=1).is_later
    assert not data.checksum(str(path), began_epoch_s=2**40).is_later
    assert not data.checksum(str(path)).is_later


def test_data_must_be_files(tmp_path: Path) -> None:
    for path in ("/dev/zero", str(tmp_path / "missing")):
        with pytest.raises(UsageError):
            data.checksum(path)


# --- machines -----------------------------------------------------------------------------------------------


def test_facts_of_a_node_are_read() -> None:
    text = (
        'kernel 5.14.0\ncpu AMD EPYC 7543\ndistribution "Rocky Linux 9.4"\nmemory MemTotal: 1048576 kB\n'
        "nvidia NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nlibc glibc 2.34\n"
    )
    found = machines.of_node(text, "c1")
    assert found is not None
    assert (found.kernel, found.cpu, found.distribution) == ("5.14.0", "AMD EPYC 7543", "Rocky Linux 9.4")
    assert (found.mem_bytes, found.driver, found.glibc) == (2**30, "nvidia 550.54.15", "2.34")
    assert machines.of_node("", "c1") is None
    assert machines.of_node("kernel \x1b[2Jx\n", "c1").kernel == "\\x1b[2Jx"  # type: ignore[union-attr]


def test_nothing_about_the_user_is_in_a_machine() -> None:
    from builders import make_site

    text = repr(machines.of_site(make_site()))
    assert "ada" not in text
    assert "4711" not in text


def test_code_keeps_its_files_apart() -> None:
    twice = make_code(files=(make_file(), make_file()))
    with pytest.raises(UsageError, match="twice"):
        parse(make_lock(code=twice))


def test_an_image_needs_a_digest_or_none() -> None:
    assert parse(make_lock(image=make_locked_image(digest=""))).image is not None


@pytest.mark.parametrize(
    ("name", "text", "command", "found"),
    [
        ("go.sh", "#!/bin/sh\nset -e\nexec torchrun train.py\n", ("./go.sh",), ("torchrun", "go.sh")),
        ("go.sh", "torchrun \\\n  --nproc-per-node 2 train.py\n", ("bash", "go.sh"), ("torchrun", "go.sh")),
        ("go", "#!/usr/bin/env bash\nsrun ./a\n", ("nice", "./go"), ("srun", "go")),
        ("go.sh", "#!/bin/sh\ntorchrun --node-rank $RANK train.py\n", ("./go.sh",), UNSET),
        ("go.sh", "#!/bin/sh\necho torchrun\n# torchrun train.py\n", ("./go.sh",), UNSET),
        ("go.py", "run(['torchrun', 'train.py'])\n", ("python", "go.py"), ("torchrun", "go.py")),
        ("go.py", "run([exe, '-m', 'torch.distributed.run'])\n", ("python", "go.py"),
         ("torch.distributed.run", "go.py")),
        ("go.py", "import torchrun\n", ("python", "go.py"), UNSET),
        ("go.py", "os.system('A=1 torchrun train.py')\n", ("python", "go.py"), ("torchrun", "go.py")),
        ("go.py", "from torch.distributed.run import main\n", ("python", "go.py"),
         ("torch.distributed.run", "go.py")),
        ("go.sh", "#!/bin/sh\nconda run -n a torchrun x\n", ("uv", "run", "./go.sh"), ("torchrun", "go.sh")),
    ],
)  # fmt: skip
def test_what_a_script_starts_ranks_by(
    project: Path, name: str, text: str, command: tuple[str, ...], found: object
) -> None:
    (project / name).write_text(text)
    assert code.facts(job_in(project, *command), "/home/ada").starter == found


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("go.py", 'int(os.environ.get("SLURM_PROCID", 0)), os.getenv("SLURM_NTASKS")',
         ["SLURM_PROCID", "SLURM_NTASKS"]),
        ("go.py", """os.environ["RANK"] = env('OMPI_COMM_WORLD_RANK', 0)""", ["OMPI_COMM_WORLD_RANK"]),
        ("go.py", "environ.update({'RANK': os.environ['PMI_RANK']}) # not 'PMIX_RANK'", ["PMI_RANK"]),
        ("go.py", "os.environ.get('RANK', os.environ.get('SLURM_PROCID'))", []),
        ("go.py", "'RANK', 'WORLD_SIZE'; os.environ['SLURM_LOCALID']", ["SLURM_LOCALID"]),
        ("go.py", "os.environ['SLURM_JOB_ID'], os.environ['TF_CONFIG_X']", []),
        ("go.sh", "python train.py --rank=${SLURM_PROCID:-0} # $PMI_RANK", ["SLURM_PROCID"]),
        ("go.sh", "RANK=$FLUX_TASK_RANK python train.py", ["FLUX_TASK_RANK"]),
    ],
)  # fmt: skip
def test_rank_variables_that_pytorch_has_not(project: Path, name: str, text: str, found: list[str]) -> None:
    (project / name).write_text(text + "\n")
    job = job_in(project, "python" if name == "go.py" else "sh", name)
    assert code.facts(job, "/home/ada").rank_variables == tuple((variable, name) for variable in found)


def test_variables_of_the_schedulers_job_that_code_reads(project: Path) -> None:
    read = "f\"{os.environ.get('SLURM_JOB_ID', 0)}\"; env['PBS_JOBID'], env['SLURM_STEP_ID'], env['PMI_RANK']"
    (project / "go.py").write_text(f"{read}\nos.environ['SLURM_ARRAY_JOB_ID'] = '1' # 'NSLOTS'\n")
    job = job_in(project, "bash", "-c", "python go.py $SLURM_ARRAY_TASK_ID")
    (project / "go.sh").write_text("#!/bin/sh\necho ${JOB_ID-} ${SLURM_CPUS_PER_TASK:-1} $SLURM_NTASKS\n")
    assert code.facts(job, "/home/ada").job_variables == (("SLURM_ARRAY_TASK_ID", "the command"),)
    found = [
        code.facts(job_in(project, *words), "/home/ada") for words in (("python", "go.py"), ("sh", "go.sh"))
    ]
    assert [[name for name, _ in each.job_variables] for each in found] == [
        ["SLURM_JOB_ID", "PBS_JOBID"], ["JOB_ID", "SLURM_CPUS_PER_TASK"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("open('/tmp/out.bin', 'wb')", ("/tmp/out.bin", "go.py")),
        ("save('~/results/a.pt')", ("~/results/a.pt", "go.py")),
        ("open('out.bin'); x = '/tmp'; y = '/data/x'", UNSET),
    ],
)
def test_paths_that_a_container_discards(project: Path, text: str, found: object) -> None:
    (project / "go.py").write_text(text + "\n")
    assert code.facts(job_in(project, "python", "go.py"), "/home/ada").scratch == found


@pytest.mark.parametrize(
    ("word", "outside", "new"),
    [
        ("{here}/home/sets/x", "{here}/home/sets/x", UNSET),
        ("--out=../home/sets/new", "{here}/home/sets", UNSET),
        ("../home/new", "", "{here}/home/new"),
        ("/tmp/bareboat-new", "", "/tmp/bareboat-new"),
        ("/nowhere/at/all", "", UNSET),
        ("new", "", UNSET),
        ("{here}/project/new", "", UNSET),
    ],
)
def test_paths_that_the_command_names(
    project: Path, monkeypatch: pytest.MonkeyPatch, word: str, outside: str, new: object
) -> None:
    monkeypatch.setattr(code, "_OF_CONTAINERS", re.compile("/usr(/.*)?"))  # the project lies in /tmp
    monkeypatch.setattr(code, "_TEMPORARY", ("/tmp/bareboat-",))
    here = project.parent
    (here / "home/sets").mkdir(parents=True)
    (here / "home/sets/x").touch()
    found = code.facts(job_in(project, "./go", word.format(here=here)), str(here / "home"))
    assert [path for path, _ in found.outside] == [outside.format(here=here)][: bool(outside)]
    expected = (new.format(here=here), "the command") if isinstance(new, str) else UNSET
    assert found.scratch == expected


def test_a_new_path_of_the_home_that_the_code_names_is_discarded(project: Path) -> None:
    home = project.parent
    (home / "results").mkdir()
    (project / "go.py").write_text(f"a = '{home}/results/toy'; b = '{home}/results'; c = '{home}/no/toy'\n")
    found = code.facts(job_in(project, "python", "go.py"), str(home))
    assert found.scratch == (f"{home}/results/toy", "go.py")


def test_paths_in_the_working_directory_and_in_mounts_are_not_discarded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.parent))
    (project / "go.py").write_text(f"save('~/{project.name}/a.pt'); save('/tmp/shown/b'); save('~/out/c')\n")
    job = job_in(project, "python", "go.py")
    assert code.facts(job, "/home/ada").scratch == ("/tmp/shown/b", "go.py")
    mounts = (Mount(source="/scratch", target="/tmp/shown", writable=True),)
    mounts += (Mount(source=f"{project.parent}/out", target="/out", writable=True),)
    assert code.facts(msgspec.structs.replace(job, mounts=mounts), "/home/ada").scratch is UNSET


# --- another image ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "image", [f"sha256:{'0' * 64}", "oci:/nowhere/x", "rootfs:/nowhere/x", "./nowhere.sif"]
)
def test_another_image_that_is_not_there_is_refused(tmp_path: Path, image: str) -> None:
    with pytest.raises((ImageError, StoreError), match=r"does not exist|not found"):
        retrieval._check_named(image, Store(tmp_path))
    retrieval._check_named("quay.io/a/b:1", Store(tmp_path))


# --- paths that are elsewhere -------------------------------------------------------------------------------


def test_a_path_that_the_lock_does_not_have_is_refused() -> None:
    moved = retrieval.read_moved(["/data=/here/data", "/scratch=/here"])
    wishes = retrieval.Wishes(moved=moved)
    assert wishes.here("/data/digits") == "/here/data/digits"
    with pytest.raises(UsageError, match="the lock has no path below /scratch"):
        retrieval.check_moved(wishes)
    assert wishes.here("/scratch") == "/here"
    retrieval.check_moved(wishes)
