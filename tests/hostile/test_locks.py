"""Locks are shared: no text of a stranger's becomes a path or a command, and none of yours has a secret."""

import os
import shlex
import time
from pathlib import Path

import msgspec
import pytest
from builders import make_job, make_site
from locked import make_code, make_file, make_lock, make_locked_image, make_results

from bareboat.model.provenance import Repository
from bareboat.runs import provenance, withheld
from bareboat_base.errors import UsageError
from bareboat_images.store import Store
from bareboat_study.reproduction import making, reading, retrieval
from bareboat_study.reproduction.document import Lock

EVIL = (
    "/home/me/outside/evil",
    "../evil",
    "a/b",
    "x; touch PWNED #",
    "$(touch PWNED)",
    "`touch PWNED`",
    "x\ntouch PWNED",
    "-rf",
    ".",
    "..",
    "",
    "x" * 300,
    "\x1b[2Jx",
    "a\x00b",
)


def _read(lock: Lock) -> Lock:
    return reading.parse(making.written(lock), what="run.lock")


def _remedies(lock: Lock, folder: Path) -> list[str]:
    wishes = retrieval.Wishes()
    found = retrieval.find(lock, Store(folder / "store"), wishes, environment={}, progress=lambda *_: None)
    return [part.remedy for part in found.parts]


@pytest.mark.parametrize("name", EVIL)
def test_the_name_of_a_lock_is_that_of_a_run(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a run") as error:
        _read(make_lock(name=name))
    assert error.value.message.isprintable()


@pytest.mark.parametrize("name", EVIL)
def test_no_code_is_written_outside_of_the_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    code = make_code(repository=None)
    try:
        lock = _read(make_lock(name=str(tmp_path / "outside" / name), code=code))
        lock = msgspec.structs.replace(lock, job=msgspec.structs.replace(lock.job, workdir="/nowhere/at/all"))
        found = retrieval.find(lock, Store(tmp_path / "store"), retrieval.Wishes(), environment={},
                               progress=lambda *_: None)  # fmt: skip
    except UsageError:
        return
    assert found.restores is None or os.path.dirname(found.restores) == str(here)


@pytest.mark.parametrize("evil", EVIL)
def test_every_remedy_is_one_command_with_words_of_the_lock_quoted(evil: str, tmp_path: Path) -> None:
    """Each text of the lock that a remedy names is refused, or quoted."""
    job = msgspec.structs.replace(make_lock().job, workdir="/nowhere/at/all")
    repository = Repository(commit="a" * 40, remote=evil, below="", difference="")
    image = make_locked_image(origin="site layer", added=(evil,))
    candidates = [
        make_lock(name=evil, job=job, image=image, code=make_code(repository=repository)),
        make_lock(job=job, image=image, code=make_code(repository=repository)),
        make_lock(job=job, image=make_locked_image(origin="site layer", base=evil, added=("mpi",))),
        make_lock(job=job, withheld=(evil,)),
        make_lock(job=job, image=make_locked_image(origin="pulled", reference=evil)),
    ]
    for candidate in candidates:
        try:
            remedies = _remedies(_read(candidate), tmp_path)
        except UsageError:
            continue
        for remedy in remedies:
            rest = remedy.replace(shlex.quote(evil), "") if evil else remedy
            assert "PWNED" not in rest
            assert "/home/me/outside" not in rest


def test_a_remote_that_names_a_program_is_not_cloned(tmp_path: Path) -> None:
    job = msgspec.structs.replace(make_lock().job, workdir="/nowhere/at/all")
    repository = Repository(commit="a" * 40, remote="ext::touch PWNED", difference="")
    remedies = _remedies(_read(make_lock(job=job, code=make_code(repository=repository))), tmp_path)
    assert not any("git clone" in remedy for remedy in remedies)


# --- secrets ------------------------------------------------------------------------------------------------

GITHUB = "ghp_" + "aB3" * 12
SECRETS = (
    GITHUB,
    "hf_" + "A" * 34,
    "sk-proj-" + "a1B2" * 10,
    "AKIA" + "A1" * 8,
    "amqp://user:hunter2@broker.example.org/q",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
)


def _made(lock: Lock, tmp_path: Path) -> str:
    """The document of a lock, as `lock` would write it."""
    maker = making.Maker(Store(tmp_path / "store"))
    return making.written(maker._checked(lock)).decode()


@pytest.mark.parametrize("secret", SECRETS)
def test_no_part_of_a_lock_has_a_secret(secret: str, tmp_path: Path) -> None:
    """Each part that is recorded without a question is left out, by its digest or its name alone."""
    text = f"x = {secret!r}\n"
    repository = Repository(commit="a" * 40, difference=f"+{text}")
    lock = make_lock(
        job=make_job(
            command=("python", "train.py", "--config", "c.yml"), environment={"BROKER": secret, "A": "1"}
        ),
        code=make_code(files=(make_file("train.py", text), make_file("c.yml", text)), repository=repository),
        results=make_results(ended_because=f"cannot log in with {secret}"),
    )
    made = _made(lock, tmp_path)
    assert secret not in made
    assert "hunter2" not in made
    back = reading.parse(made.encode(), what="run.lock")
    assert back.withheld == ("BROKER",)
    assert back.job.environment == {"A": "1"}
    assert back.code is not None
    assert [bool(file.sha256) and file.text is None for file in back.code.files] == [True, True]
    assert len([note for note in back.not_recorded if "it has" in note]) == 4


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"patterns": {"loss": f"({GITHUB})"}}, "patterns.loss"),
        ({"patterns": {GITHUB: "(x)"}}, "patterns of"),
        ({"nodes": (GITHUB,)}, "nodes[0]"),
        ({"results": make_results(metrics={GITHUB: 1.0})}, "results.metrics of"),
        ({"image": make_locked_image(reference=f"https://ada:{GITHUB}@example.org/x")}, "image.reference"),
        ({"job": make_job(command=("x",), name="job-" + GITHUB)}, "job.name"),
    ],
)
def test_the_place_of_any_other_secret_is_named(
    changes: dict[str, object], place: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        _made(make_lock(**changes), tmp_path)
    assert place in error.value.message
    assert GITHUB not in str(error.value)
    assert error.value.remedy


@pytest.mark.parametrize(
    "name",
    ["token.txt", "secrets.yml", ".env", "prod.env", "credentials.json", "id_rsa", ".netrc", "api_key"],
)
def test_files_that_are_secrets_by_name_are_recorded_by_digest(name: str) -> None:
    (file,) = withheld.of_code(make_code(files=(make_file(name, "abc"),))).files
    assert (file.text, bool(file.sha256)) == (None, True)


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "train.py", "token.py", "environment.yml", "keys.csv", "c.yml"]
)
def test_other_files_are_recorded(name: str) -> None:
    file = make_file(
        name, "learning_rate: 0.1\nhomepage: https://example.org:8080/desk-experiments-of-2024-11\n"
    )
    assert withheld.of_code(make_code(files=(file,))).files == (file,)


def test_what_is_kept_of_a_run_has_no_secret_either(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(f"KEY = {GITHUB!r}\n")
    (folder / "token.txt").write_text("hf_" + "A" * 34)
    store = Store(tmp_path / "store")
    job = make_job(
        command=("python", "train.py", "--config", "token.txt"), workdir=str(folder),
        environment={"WANDB": GITHUB, "SEED": "1"},
    )  # fmt: skip
    (store.run("x-20260101-000000")).mkdir(parents=True)
    provenance.keep(store, "x-20260101-000000", job, make_site())
    text = (store.run("x-20260101-000000") / "provenance.json").read_text()
    assert GITHUB not in text
    assert "hf_" not in text
    found = provenance.read(store, "x-20260101-000000")
    assert found is not None
    assert found.code is not None
    assert {file.path: file.text for file in found.code.files} == {"train.py": None, "token.txt": None}
    assert found.withheld == ("WANDB",)


@pytest.mark.parametrize(
    "part",
    ["a", "sk-", "hf_", "://:", "a://", "-----BEGIN ", "A", "xoxb-", "github_pat_", "a=", "ENV ", "sk-a-"],
)
def test_the_search_is_linear_in_the_text(part: str) -> None:
    text = part * (200_000 // len(part))
    began = time.process_time()
    withheld.form(text)
    assert time.process_time() - began < 20  # quadratic: hours
