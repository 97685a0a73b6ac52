"""Values of environment variables: they arrive, and nobody else sees them.

While a job runs every argv of the machine is read, again and again; then every file below the store, the
temporary directory and the job's folder, and all that Bareboat printed.
"""

import contextlib
import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
from builders import make_image, make_rootfs, make_site
from engine_lab import Lab
from environments import Captured
from processes import environment
from strangers import run_as_stranger

from bareboat import render
from bareboat.model import Job, SchedulerFacts, Topology, looks_secret
from bareboat.plan import plan
from bareboat_base import codec
from bareboat_base.errors import PlanError, UsageError
from bareboat_images.store import Store

pytestmark = pytest.mark.one_in(25)

#: Values that no other process, and no file, has by chance.
KEPT, PASSED = "canary-kept-7d1f9c", "canary-passed-e04b2a"

#: Says what arrived without saying it, and stays for a while.
SAYS = """
import hashlib, os, sys, time
for name in sys.argv[1:]:
    print(hashlib.sha256(os.environb[name.encode()]).hexdigest(), flush=True)
time.sleep(0.4)
"""


def digest(value: str) -> str:
    return hashlib.sha256(os.fsencode(value)).hexdigest()


class Watch:
    """Reads every argv of this machine until it is told to stop; `seen`: those with a value in them."""

    def __init__(self, *values: str) -> None:
        self._values = [value.encode() for value in values]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: set[bytes] = set()

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if any(value in words for value in self._values):
                        self.seen.add(words[:2000])


def files_with(value: str, *folders: Path) -> list[Path]:
    """The files that hold it; of a link what it leads to is looked at only where it is."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and value.encode() in path.read_bytes():
                found.append(path)
    return found


# -- every engine ------------------------------------------------------------------------------------


def test_values_stand_in_no_argv(lab: Lab) -> None:
    with Watch(KEPT, PASSED) as watch:
        done = lab.python(
            SAYS, "MY_SETTING", "MY_API_KEY",
            environment={"MY_SETTING": KEPT}, environment_from=("MY_API_KEY",), caller={"MY_API_KEY": PASSED},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split() == [digest(KEPT), digest(PASSED)]
    assert watch.seen == set()
    assert PASSED.encode() not in (lab.workdir.parent / "job.sh").read_bytes()


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "a b", "$HOME", "${BAREBOAT_ENV_0}", "'\"\\`id`$(id)", "ü\n x\n", "=", "-x", "--setenv",
        "\\c\\n", "#", "a\tb\r\n", "*", "%s%n", "\u202e", "x" * 100_000, "--\n--args\n0",
    ],
    ids=lambda value: ascii(value[:14]),
)  # fmt: skip
def test_what_is_passed_on_by_name_arrives_bit_for_bit(lab: Lab, value: str) -> None:
    done = lab.python(
        SAYS, "MY_SETTING", "MY_API_KEY",
        environment={"MY_SETTING": value}, environment_from=("MY_API_KEY",), caller={"MY_API_KEY": value},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split() == [digest(value)] * 2


@pytest.mark.parametrize(
    "name",
    [
        "UID", "SHLVL", "PS1", "PS4", "IFS", "BASH_ENV", "ENV", "LC_ALL", "LD_BIND_NOW", "PYTHONPATH",
        "OLDPWD", "PROOT_TMP_DIR", "SSL_CERT_FILE", "RANDOM", "SECONDS", "POSIXLY_CORRECT", "GODEBUG",
        "XDG_RUNTIME_DIR", "CONTAINERS_CONF", "PROOT_NO_SECCOMP", "CH_RUNNING", "name", "value",
        "sealed", "passed", "clé",
    ],
)  # fmt: skip
def test_names_that_shells_and_tools_take_for_their_own_arrive_too(lab: Lab, name: str) -> None:
    if lab.case.engine != "native" and name == "CH_RUNNING":
        return  # Charliecloud's own variable is taken away from every command
    value = "/nowhere"
    done = lab.python(SAYS, name, environment={name: value})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().split() == [digest(value)]


def test_a_variable_that_is_not_set_is_told_before_the_command_starts(lab: Lab) -> None:
    done = lab.python("print('ran')", environment_from=("MY_API_KEY", "OTHER_KEY"), caller={"OTHER_KEY": ""})
    assert done.returncode == 3
    assert done.stdout == b""
    assert b"the environment variable MY_API_KEY is not set" in done.stderr


def test_nothing_else_of_the_caller_comes_with_it(lab: Lab) -> None:
    said = lab.says(
        "import os; print(sorted(name for name in os.environ if name.startswith(('MY_', 'BAREBOAT_ENV'))))",
        environment_from=("MY_API_KEY",), caller={"MY_API_KEY": "x", "MY_OTHER": "y"},
    )  # fmt: skip
    assert said == "['MY_API_KEY']"


# -- the command line --------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "says.py").write_text(SAYS)
    (folder / "tmp").mkdir()
    return folder


def write_job(work: Path, captured: Captured, *, more: str = "", environment: str = "") -> Path:
    path = work / "job.toml"
    path.write_text(
        f'command = ["{captured.python}", "says.py", "MY_API_KEY", "WANDB_API_KEY"]\n'
        f'environment_from = ["WANDB_API_KEY"]\n{more}\n[environment]\nMY_API_KEY = "{KEPT}"\n{environment}\n'
        f'[capture]\npython = "{captured.python}"\n'
    )
    return path


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def bareboat(
    work: Path, store: Path, *words: str | Path, given: bool = True
) -> subprocess.CompletedProcess[str]:
    own = {**environment(store), "TMPDIR": str(work / "tmp")}
    own.pop("WANDB_API_KEY", None)
    if given:
        own["WANDB_API_KEY"] = PASSED
    return forked.run(*words, cwd=work, env=own, timeout_s=120)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077], ids=oct)
@pytest.mark.parametrize("engine", ["native", "bubblewrap"])
@pytest.mark.parametrize("ranks", [1, 2], ids=["one", "two"])
def test_a_run_keeps_values_to_itself(
    work: Path, captured: Captured, mask: int, engine: str, ranks: int
) -> None:
    launcher = 'launcher = "ranks"\n' if ranks > 1 else ""
    job = write_job(
        work, captured, more=f'engine = "{engine}"\n{launcher}topology = {{ranks_per_node = {ranks}}}'
    )
    store = captured.store.root
    with umask(mask), Watch(KEPT, PASSED) as watch:
        done = bareboat(work, store, "run", "-v", job)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(digest(KEPT)) == done.stdout.count(digest(PASSED)) == ranks
    assert watch.seen == set()
    assert KEPT not in done.stdout + done.stderr
    assert PASSED not in done.stdout + done.stderr
    assert files_with(PASSED, store / "runs", store / "tmp", work) == []
    holders = files_with(KEPT, store / "runs", store / "tmp", work / "tmp")
    run = max((store / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    assert {path.name for path in holders} == {"job.sh", "shell.sh"}
    assert run.stat().st_mode & 0o777 == 0o700
    for path in (*holders, run / "record.json"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    seen = run_as_stranger(
        'cat "$1" 2>/dev/null && exit 1; ls "$2" 2>/dev/null && exit 2; exit 0', holders[0], run
    )
    assert seen.returncode == 0, "another user reads it"


@pytest.mark.parametrize(
    "words",
    [
        ("plan",), ("plan", "--json"), ("plan", "-v"), ("run", "--dry-run"), ("run", "--dry-run", "--json"),
        ("prove", "--dry-run"), ("prove", "--dry-run", "--json"), ("run", "--json", "-v"),
    ],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("engine", ["native", "bubblewrap"])
def test_nothing_that_is_printed_has_a_value(
    work: Path, captured: Captured, words: tuple[str, ...], engine: str
) -> None:
    job = write_job(work, captured, more=f'engine = "{engine}"')
    done = bareboat(work, captured.store.root, *words, job)
    assert done.returncode == 0, done.stderr
    for value in (KEPT, PASSED, digest(KEPT) if words[0] != "run" else PASSED):
        assert value not in done.stdout + done.stderr
    if words[0] == "plan":
        assert "WANDB_API_KEY" in done.stdout


def test_the_plan_says_that_a_secret_is_better_passed_on_by_name(work: Path, captured: Captured) -> None:
    done = bareboat(work, captured.store.root, "plan", write_job(work, captured, more='engine = "native"'))
    assert 'environment_from = ["MY_API_KEY"]' in done.stdout
    assert 'environment_from = ["WANDB_API_KEY"]' not in done.stdout


@pytest.mark.parametrize("verb", ["run", "prove"])
def test_a_variable_that_is_not_set_is_refused_at_once(work: Path, captured: Captured, verb: str) -> None:
    before = set((captured.store.root / "runs").glob("*"))
    done = bareboat(work, captured.store.root, verb, write_job(work, captured), given=False)
    assert done.returncode == 2
    assert "not set in this shell: WANDB_API_KEY" in done.stderr
    assert "export WANDB_API_KEY" in done.stderr
    assert set((captured.store.root / "runs").glob("*")) == before


def test_a_plan_needs_no_value(work: Path, captured: Captured) -> None:
    done = bareboat(
        work, captured.store.root, "plan", write_job(work, captured, more='engine = "native"'), given=False
    )
    assert done.returncode == 0, done.stderr


def test_the_flag_names_a_variable_of_a_command(work: Path, captured: Captured) -> None:
    done = bareboat(
        work, captured.store.root, "run", "--engine", "native", "--python", captured.python, "--env-from",
        "WANDB_API_KEY", "--", captured.python, "says.py", "WANDB_API_KEY",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert digest(PASSED) in done.stdout


def test_the_values_of_a_sweep_stand_in_no_argv(work: Path, captured: Captured) -> None:
    (work / "says.py").write_text(SAYS)
    job = work / "job.toml"
    job.write_text(
        f'command = ["{captured.python}", "says.py", "TAG", "BAREBOAT_SWEEP_TOKEN"]\nengine = "bubblewrap"\n'
        f'[environment]\nTAG = "of {{token}}"\n[sweep]\ntoken = ["{KEPT}"]\n'
        f'[capture]\npython = "{captured.python}"\n'
    )
    with Watch(KEPT) as watch:
        done = bareboat(work, captured.store.root, "run", "-q", job)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [digest(f"of {KEPT}"), digest(KEPT)]
    assert watch.seen == set()


# -- plans and names ---------------------------------------------------------------------------------


def make_plan(**changes: Any) -> Any:
    image = make_image()
    facts: dict[str, Any] = {"name": "job", "command": ("true",), "workdir": "/work", "engine": "bubblewrap"}
    return plan(Job(**(facts | changes)), image, make_rootfs(image), make_site())


@pytest.mark.parametrize("engine", ["native", "bubblewrap"])
@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL"]
)
def test_a_digest_does_not_tell_a_secret(engine: str, name: str) -> None:
    """A password of few letters is soon found by the digest of the plan that holds it, which records show."""
    first, second = (make_plan(engine=engine, environment={name: value}) for value in ("1234", "5678"))
    assert render.digest(first) == render.digest(second)
    assert render.digest(first) != render.digest(make_plan(engine=engine))
    changed = [make_plan(engine=engine, environment={"LR": value}) for value in ("1", "2")]
    assert render.digest(changed[0]) != render.digest(changed[1])


@pytest.mark.parametrize("name", ["LR", "PATH", "LD_LIBRARY_PATH", "TAG", "MY_TOKEN"])
def test_a_plan_is_shown_with_names_only(name: str) -> None:
    shown = codec.to_json(render.shown(make_plan(environment={name: KEPT}))).decode()
    assert name in shown
    assert KEPT not in shown


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "HOME", "LD_PRELOAD", "BASH_ENV", "IFS", "BAREBOAT_RUN", "BAREBOAT_ENV_0", "UID", "code",
        "script", "hosts", "name", "a-b", "1A", "", "A=B", "A B", "A\nB", "clé", "$(id)", "A;id",
        "PYTHONPATH", "HERE", "RANK",
    ],
)  # fmt: skip
def test_what_cannot_be_passed_on_by_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        Job(name="job", command=("true",), workdir="/work", environment_from=(name,))


def test_a_name_is_given_once() -> None:
    with pytest.raises(UsageError, match=r"A_KEY is both in environment_from and under \[environment\]"):
        Job(
            name="job",
            command=("true",),
            workdir="/",
            environment={"A_KEY": "x"},
            environment_from=("A_KEY",),
        )


def test_a_launcher_s_own_variable_is_not_passed_on() -> None:
    with pytest.raises(PlanError, match="WORLD_SIZE"):
        make_plan(environment_from=("WORLD_SIZE",), launcher="ranks", topology=Topology(ranks_per_node=2))


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in (
            "WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_KEY", "AWS_ACCESS_KEY_ID",
            "DB_PASS", "DB_PASSWORD", "PGPASSWORD", "COMET_API_KEY", "GITHUB_TOKEN", "GH_TOKEN", "BASIC_AUTH",
            "SENTRY_DSN", "DATABASE_URL", "https_proxy", "HTTPS_PROXY", "GOOGLE_APPLICATION_CREDENTIALS",
            "SSH_PRIVATE_KEY", "COOKIE", "secret", "OPENAI_APIKEY", "KEY", "X_KEYS", "PASSPHRASE",
        )),
        *((name, False) for name in (
            "LR", "OMP_NUM_THREADS", "PATH", "PYTHONPATH", "KEYBOARD", "MONKEY", "AUTHOR", "COMPASS",
            "PASSES", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "TF_CPP_MIN_LOG_LEVEL", "HOME", "BATCH", "EPOCHS",
        )),
    ],
)  # fmt: skip
def test_which_names_look_like_secrets(name: str, is_one: bool) -> None:
    assert looks_secret(name) == is_one


@pytest.mark.parametrize("mask", [0o000, 0o022], ids=oct)
@pytest.mark.parametrize(
    "name", ["job.sh", "plan.json", "submission.json", "record.json", "sweep.json", "table"]
)
def test_files_of_a_run_are_the_user_s_alone(tmp_path: Path, mask: int, name: str) -> None:
    with umask(mask):
        store = Store(tmp_path / "store")
        run_id = store.new_run("job")
        store.write(store.run(run_id) / name, b"x")
    assert store.run(run_id).stat().st_mode & 0o777 == 0o700
    assert (store.run(run_id) / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("scheduler", ["slurm", "gridengine", "pbs", "flux"])
def test_a_job_of_a_scheduler_says_names_only(scheduler: str) -> None:
    image = make_image()
    facts = SchedulerFacts(
        name=scheduler,
        version="1",
        settings={"pe:each2": "2", "flavour": "pro"} if scheduler != "slurm" else {},
    )
    job = Job(
        name="job", command=("true",), workdir="/work", engine="bubblewrap", scheduler=scheduler,
        walltime_s=60, environment_from=("MY_API_KEY",), launcher="single",
    )  # fmt: skip
    made = plan(job, image, make_rootfs(image), make_site(schedulers=(facts,)))
    script = render.script(made)
    head = script.partition("features=")[0]
    assert not [line for line in (*made.directives, *made.warnings, head) if "MY_API_KEY" in line]
    assert "environment_from=(MY_API_KEY)" in script
