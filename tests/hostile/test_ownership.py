"""Another user's files and directories, or that others may write: never obeyed, and nothing of them started.

Where two users are needed there are two: `strangers` takes a subordinate id of the tester's.
"""

import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders import make_job
from strangers import own_as_stranger, remove_as_stranger, run_as_stranger
from tools import completed, executable

from bareboat import config, consent
from bareboat.runs import code
from bareboat_base.errors import UsageError
from bareboat_base.files import ownership
from bareboat_images.store import Store
from bareboat_shim.main import main as shim_main

pytestmark = pytest.mark.one_in(4)

MACHINE = platform.machine()
#: What A's account would do for B: leave a trace that names it.
PLANTED = '#!/bin/sh\nid -un >> "{trace}"\necho "PRoot v5.1.0: hostile"\n'


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that both users can reach, which pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="bareboat-hostile-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and path.stat().st_uid == os.getuid():
            path.chmod(0o755)
    for path in [path for path in folder.rglob("*") if path.lstat().st_uid != os.getuid()]:
        if path.is_dir():
            remove_as_stranger(path)
    shutil.rmtree(folder)


def plant_store(store: Path, trace: Path) -> None:
    """A store as B would make it: every program that Bareboat has in a store leaves a trace."""
    text = PLANTED.format(trace=trace)
    for name in ("bwrap", "start.run", "sampler.py", f"proot-{MACHINE}"):
        path = store / "programs" / ("0" * 16) / name
        executable(path, text)
    (store / "tmp").mkdir()
    (store / "version").write_text("2\n")


def bareboat(
    *words: str | Path, folder: Path, home: Path, stdin: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The program as A runs it: with a home of its own and no store named, unless `variables` does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BAREBOAT_")}
    environment |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), **variables}
    for name in ("XDG_DATA_HOME", "SCRATCH", "WORK"):
        environment.pop(name, None)
    done = completed(
        [sys.executable, "-m", "bareboat", *map(str, words)], cwd=folder, env=environment, input=stdin or ""
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode != 70, done.stderr
    return done


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


VERBS = (
    ("doctor",),
    ("plan", "--engine", "native", "--", "true"),
    ("run", "-q", "--engine", "native", "--", "true"),
    ("submit", "--", "true"),
    ("status",),
    ("image", "ls"),
    ("config",),
    ("report",),
)


# -- another user's settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb))
def test_another_user_s_project_file_above_the_directory_starts_nothing(
    verb: tuple[str, ...], open_place: Path, home: Path
) -> None:
    shared, trace = open_place / "shared", open_place / "trace"
    plant_store(shared / "evil", trace)
    (shared / "bareboat.toml").write_text('store = "evil"\n')
    own_as_stranger(shared)
    run_as_stranger('chmod 777 "$1"', shared)
    mine = shared / "mine"
    mine.mkdir()
    done = bareboat(*verb, folder=mine, home=home)
    assert not trace.exists(), trace.read_text()
    assert "bareboat.toml is ignored" in done.stderr
    assert "belongs to" in done.stderr
    assert "evil" not in done.stdout


PLANT_GIT = """
mkdir -p "$1/.git/refs/heads" "$1/.git/objects"; cd "$1/.git"
echo "ref: refs/heads/main" > HEAD; printf "%040d\\n" 1 > refs/heads/main
printf '[remote "origin"]\\n\\turl = https://evil.example/code.git\\n' > config; touch index
chmod -R a+rX .
"""


@pytest.mark.parametrize("how", ["above", "gitdir", "commondir", "link"])
def test_another_user_s_repository_is_not_that_of_the_code(how: str, open_place: Path) -> None:
    open_place.chmod(0o1777)
    own = open_place / "mine"
    own.mkdir()
    (own / "train.py").write_text("print(1)\n")
    planted = open_place if how == "above" else open_place / "theirs"
    done = run_as_stranger(PLANT_GIT, planted)
    assert done.returncode == 0, done.stderr
    if how == "gitdir":
        (own / ".git").write_text(f"gitdir: {planted}/.git\n")
    elif how == "commondir":
        (own / ".git").mkdir()
        (own / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (own / ".git/commondir").write_text(f"{planted}/.git\n")
    elif how == "link":  # theirs, to a repository of the user's
        shutil.copytree(planted / ".git", open_place / "code/.git")
        assert run_as_stranger('ln -s "$1/code/.git" "$1/.git"', open_place).returncode == 0
    found = code.look(make_job(command=("python", "train.py"), workdir=str(own)))
    assert found is not None
    assert found.repository is None
    assert [file.path for file in found.files] == ["train.py"]
    (note,) = found.notes
    assert "is not recorded" in note
    assert "belongs to uid" in note


def test_another_user_s_repository_does_not_hide_the_user_s(open_place: Path) -> None:
    (open_place / "open").mkdir()
    (open_place / "open").chmod(0o1777)
    for words in (("init", "-q"), ("commit", "-qm", "x", "--allow-empty")):
        identity = ("-c", "user.name=Ada", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *words], cwd=open_place, check=True)
    assert run_as_stranger(PLANT_GIT, open_place / "open").returncode == 0
    found = code.look(make_job(command=("true",), workdir=str(open_place / "open")))
    assert found is not None
    assert found.repository is not None
    assert (found.repository.remote, found.repository.below) == ("", "open")
    (note, *_) = found.notes
    assert f"the repository at {open_place}/open is not recorded" in note


def test_a_repository_that_every_user_may_write_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git").chmod(0o777)
    found = code.look(make_job(command=("true",), workdir=str(tmp_path)))
    assert found is not None
    assert found.notes == (
        f"the repository at {tmp_path} is not recorded: {tmp_path}/.git is writable by every user",
    )


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb))
def test_a_cloned_repository_s_store_is_not_used_unasked(
    verb: tuple[str, ...], tmp_path: Path, home: Path
) -> None:
    clone, trace = tmp_path / "clone", tmp_path / "trace"
    plant_store(clone / ".st", trace)
    (clone / "bareboat.toml").write_text('store = ".st"\n')
    done = bareboat(*verb, folder=clone, home=home)
    assert not trace.exists(), trace.read_text()
    assert done.returncode == 2
    assert f"{clone}/bareboat.toml, line 1" in done.stderr
    assert done.stderr.count("try:") == 1


GUARDED = {"store": "x", "mirrors": "docker.io=evil.example", "plain_http": "docker.io", "ca_file": "ca.pem",
           "engine": "native", "modules": "/tmp/evil", "node_scratch": "/tmp/evil",
           "policy": "x"}  # fmt: skip


def test_every_guarded_key_is_tried() -> None:
    assert set(GUARDED) == set(config.PERSONAL)


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("above", ["", "a", "a/b/c"])
def test_a_project_file_cannot_set_it(name: str, above: str, tmp_path: Path, home: Path) -> None:
    """Also where a flag or a variable decides: the file says what it must not."""
    (tmp_path / "bareboat.toml").write_text(f'seed = 5\n{name} = "{GUARDED[name]}"\n')
    folder, environment = tmp_path / above, {"HOME": str(home)}
    folder.mkdir(parents=True, exist_ok=True)
    for flags in ({}, {name: "/mine"}):
        with pytest.raises(UsageError, match=f"{name} cannot be set in a project's file") as caught:
            config.resolve(flags, folder=folder, environment=environment)
        assert caught.value.context == f"{tmp_path}/bareboat.toml, line 2"


@pytest.mark.parametrize("where", ["file", "link", "directory", "above", "link to directory"])
def test_a_stranger_s_hand_is_seen_wherever_it_is(where: str, open_place: Path, home: Path) -> None:
    """The file, the link to it, its directory, one above, and the target of a link to a directory."""
    theirs = open_place / "theirs"
    (theirs / "in").mkdir(parents=True)
    (theirs / "in/bareboat.toml").write_text("seed = 666\n")
    own_as_stranger(theirs)
    run_as_stranger('chmod -R 777 "$1"', theirs)
    folder = open_place / "mine"
    folder.mkdir()
    match where:
        case "file":
            folder = theirs / "in"
        case "link":
            (folder / "bareboat.toml").symlink_to(theirs / "in/bareboat.toml")
        case "directory":
            (theirs / "in/own").mkdir()
            folder = theirs / "in/own"
            (folder / "bareboat.toml").write_text("seed = 666\n")
        case "above":
            folder = theirs / "in/deep/er"
            folder.mkdir(parents=True)
            (folder / "bareboat.toml").write_text("seed = 666\n")
        case _:
            folder = open_place / "mine/link"
            folder.symlink_to(theirs / "in")
    assert config.resolve({}, folder=folder, environment={"HOME": str(home)})["seed"] != 666


def test_a_remedy_starts_nothing_that_is_in_a_stranger_s_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "$(echo started >&2); echo started"
    place.mkdir()
    place.chmod(0o777)
    doubt = ownership.doubt(place)
    assert doubt is not None
    subprocess.run(["sh", "-c", doubt.remedy], check=True)
    assert ownership.doubt(place) is None
    assert shim_main("udocker", "/shim", ["run", "-v", f"{place}/none:/x", "box"], {"PATH": "/bin"}) == 2
    remedy = capfd.readouterr().err.partition("try: ")[2].splitlines()[0]
    subprocess.run(["sh", "-c", remedy], check=True)
    assert (place / "none").is_dir()
    assert "started" not in capfd.readouterr().out


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o622, 0o602])
def test_settings_of_one_s_own_that_all_may_write_are_an_error(mode: int, tmp_path: Path, home: Path) -> None:
    file = tmp_path / "bareboat.toml"
    file.write_text("seed = 5\n")
    file.chmod(mode)
    with pytest.raises(UsageError, match="not trusted") as caught:
        config.resolve({}, folder=tmp_path, environment={"HOME": str(home)})
    assert "is writable by every user" in caught.value.context
    assert f"chmod go-w {file}" in caught.value.remedy


@pytest.mark.parametrize("open_part", ["site.toml", "bareboat", ".config"])
def test_a_site_file_that_others_may_write_is_an_error(open_part: str, home: Path, tmp_path: Path) -> None:
    folder = home / ".config/bareboat"
    folder.mkdir(parents=True)
    (folder / "site.toml").write_text('store = "/x"\n')
    environment = {"HOME": str(home)}
    assert str(config.resolve({}, folder=tmp_path, environment=environment).store) == "/x"
    place = next(path for path in (folder / "site.toml", folder, home / ".config") if path.name == open_part)
    place.chmod(0o777)
    with pytest.raises(UsageError, match=r"site\.toml are not trusted"):
        config.resolve({}, folder=tmp_path, environment=environment)


def test_agreements_are_the_user_s_alone_and_are_refused_from_others(tmp_path: Path, home: Path) -> None:
    environment = {"HOME": str(home)}
    old = os.umask(0)
    try:
        consent.give(tmp_path, "above:1", environment)
    finally:
        os.umask(old)
    assert consent.is_given(tmp_path, "above:1", environment)
    (kept,) = consent.folder(environment).iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.chmod(0o666)
    with pytest.raises(UsageError, match="is ignored"):
        consent.is_given(tmp_path, "above:1", environment)
    kept.chmod(0o600)
    for damage in ("", "[]", "{", '{"a": 1}', "[" * 10_000, "\0"):
        kept.write_text(damage)
        with pytest.raises(UsageError, match="is damaged"):
            consent.is_given(tmp_path, "above:1", environment)
    kept.unlink()
    kept.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("{}")
    with pytest.raises(UsageError, match="is a symbolic link"):
        consent.is_given(tmp_path, "above:1", environment)


def test_several_agree_at_the_same_time(tmp_path: Path, home: Path) -> None:
    environment = {"HOME": str(home)}
    places = [tmp_path / str(number) for number in range(50)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda place: consent.give(place, "above:1", environment), places))
    assert consent.paths(environment) == sorted(map(str, places))


def test_trust_lists_keeps_and_forgets(tmp_path: Path, home: Path) -> None:
    store = tmp_path / "open" / "store"
    store.mkdir(parents=True)
    store.parent.chmod(0o777)
    said = bareboat("config", "trust", str(store), folder=tmp_path, home=home)
    assert (said.returncode, str(store.parent) in said.stdout) == (0, True)
    told = bareboat("config", "trust", "--json", folder=tmp_path, home=home)
    assert json.loads(told.stdout) == [str(store)]
    forget = ("config", "trust", "--forget", str(store))
    assert [bareboat(*forget, folder=tmp_path, home=home).returncode for _ in range(2)] == [0, 2]
    (tmp_path / "bareboat.toml").touch()
    for wrong in ("nothing", "/dev/zero", "bareboat.toml"):
        assert bareboat("config", "trust", wrong, folder=tmp_path, home=home).returncode == 2


# -- another user's store ------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["flag", "variable", "site file", "default"])
@pytest.mark.parametrize("verb", VERBS[:6], ids=lambda verb: " ".join(verb))
def test_nothing_is_started_out_of_another_user_s_store_however_it_is_named(
    named: str, verb: tuple[str, ...], open_place: Path, home: Path, tmp_path: Path
) -> None:
    evil, trace = open_place / "evil", open_place / "trace"
    plant_store(evil / "bareboat", trace)
    own_as_stranger(evil)
    store = evil / "bareboat"
    words: tuple[str, ...] = verb
    variables = {}
    match named:
        case "flag":
            at = 2 if verb[0] == "image" else 1
            words = (*verb[:at], "--store", str(store), *verb[at:])
        case "variable":
            variables = {"BAREBOAT_STORE": str(store)}
        case "site file":
            (home / ".config/bareboat").mkdir(parents=True)
            (home / ".config/bareboat/site.toml").write_text(f'store = "{store}"\n')
        case _:
            variables = {"PROJECT": str(evil)}
    done = bareboat(*words, folder=tmp_path, home=home, **variables)
    assert not trace.exists(), trace.read_text()
    if named != "default":
        assert done.returncode == 4, done.stderr
        assert f"{store} belongs to" in done.stderr or f"{evil} belongs to" in done.stderr
        assert "others can change it" in done.stderr


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o702, 0o733])
def test_a_store_that_all_may_write_is_refused(mode: int, tmp_path: Path, home: Path) -> None:
    store, trace = tmp_path / "open", tmp_path / "trace"
    plant_store(store, trace)
    store.chmod(mode)
    done = bareboat("doctor", "--store", store, folder=tmp_path, home=home)
    assert not trace.exists()
    assert (done.returncode, "try: choose a store of your own" in done.stderr) == (4, True)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o722])
def test_a_store_below_a_directory_that_all_may_write_needs_an_agreement(
    mode: int, tmp_path: Path, home: Path
) -> None:
    project = tmp_path / "project"
    (project / "me").mkdir(parents=True)
    project.chmod(mode)
    store = project / "me/store"
    done = bareboat("image", "ls", "--store", store, folder=tmp_path, home=home)
    assert done.returncode == 4
    assert f"{project} is writable by every user" in done.stderr
    assert f"bareboat config trust {store}" in done.stderr
    store.mkdir()
    assert bareboat("config", "trust", store, folder=tmp_path, home=home).returncode == 0
    assert bareboat("image", "ls", "--store", store, folder=tmp_path, home=home).returncode == 0
    # The agreement is to what was shown, and to no more.
    (project / "me").chmod(0o777)
    assert bareboat("image", "ls", "--store", store, folder=tmp_path, home=home).returncode == 4
    project.chmod(0o1777)
    (project / "me").chmod(0o755)
    assert bareboat("image", "ls", "--store", store, folder=tmp_path, home=home).returncode == 0


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_a_new_store_its_runs_and_its_scripts_are_private_whatever_the_umask(
    umask: int, tmp_path: Path
) -> None:
    old = os.umask(umask)
    try:
        store = Store(tmp_path / "new/store")
        run = store.run(store.new_run("x"))
        store.write(run / "ranks/job.sh", b"TOKEN=1")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) & 0o022 == 0
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert stat.S_IMODE((run / "ranks/job.sh").stat().st_mode) == 0o600


def test_a_directory_that_is_no_store_keeps_its_mode_and_its_files(
    open_place: Path, tmp_path: Path, home: Path
) -> None:
    """Any program may keep its version in a file of that name."""
    project = open_place / "project"
    (project / "tools").mkdir(parents=True)
    (project / "version").write_text("1.4.2\n")
    for words in (
        ["image", "ls"],
        ["image", "capture"],
        ["config", "store"],
    ):
        for mode in (0o777, 0o755):
            project.chmod(mode)
            done = bareboat(*words, folder=tmp_path, home=home, BAREBOAT_STORE=str(project))
            assert done.returncode == 4, words
            assert mode == 0o777 or "has version 1.4.2" in done.stderr
            assert stat.S_IMODE(project.stat().st_mode) == mode, words
            assert sorted(os.listdir(project)) == ["tools", "version"]


# -- the rule itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "directory"])
@pytest.mark.parametrize("mode", range(0o600, 0o1000, 0o1))
def test_the_rule_of_modes(kind: str, mode: int, tmp_path: Path) -> None:
    """Believed if and only if nobody else may write. Our own private group counts as nobody else."""
    if mode & 0o055:  # who may read or execute makes no difference; a few are enough
        mode &= 0o722
    path = tmp_path / "x"
    path.mkdir() if kind == "directory" else path.touch()
    path.chmod(mode)
    private = _own_group_is_private()
    expected = not mode & 0o002 and (private or not mode & 0o020)
    assert (ownership.doubt(path) is None) == expected
    path.chmod(0o700)


def _own_group_is_private() -> bool:
    import grp
    import pwd

    user = pwd.getpwuid(os.getuid())
    group = grp.getgrgid(os.getgid())
    return user.pw_name == group.gr_name and not set(group.gr_mem) - {user.pw_name}


@pytest.mark.parametrize("sticky", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_a_sticky_directory_is_good_above_and_not_itself(sticky: bool, last: bool, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "x").touch()
    folder.chmod(0o1777 if sticky else 0o777)
    assert (ownership.doubt(folder if last else folder / "x") is None) == (sticky and not last)


def test_links_are_followed_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/x").touch()
    (tmp_path / "open/link").symlink_to(tmp_path / "closed")
    (tmp_path / "there").symlink_to("open/link/../closed/x")
    assert ownership.doubt(tmp_path / "there") is None
    (tmp_path / "open").chmod(0o777)
    found = ownership.doubt(tmp_path / "there")
    assert found is not None
    assert found.place == str(tmp_path / "open")


@pytest.mark.parametrize("length", [2, 41, 100])
def test_links_in_a_circle_end(length: int, tmp_path: Path) -> None:
    for number in range(length):
        (tmp_path / str(number)).symlink_to(str((number + 1) % length))
    found = ownership.doubt(tmp_path / "0")
    assert found is not None
    assert "too many symbolic links" in found.reason


def test_what_is_not_there_cannot_be_doubted_but_what_is_above_it_can(tmp_path: Path) -> None:
    assert ownership.doubt(tmp_path / "a/b/c") is None
    (tmp_path / "a").mkdir(mode=0o777)
    (tmp_path / "a").chmod(0o777)
    assert ownership.doubt(tmp_path / "a/b/c") is not None


def test_an_acl_makes_no_group_private(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    path.chmod(0o660)
    if shutil.which("setfacl") is None:
        pytest.skip("setfacl is not installed")
    done = subprocess.run(["setfacl", "-m", "u:1:rw", str(path)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("the file system has no POSIX ACLs")
    found = ownership.doubt(path)
    assert found is not None
    assert "is writable by the group" in found.reason


def test_files_are_not_made_where_others_can_exchange_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's TMPDIR, or one that everybody may write to, is passed over, also by PRoot's program and
    for the script of a job."""
    from bareboat.engines import proot_start
    from bareboat_shim import pyxis_task

    open_place, own = tmp_path / "open", tmp_path / "own"
    for folder, mode in ((open_place, 0o777), (own, 0o700)):
        folder.mkdir()
        folder.chmod(mode)
    for folder, expected in ((open_place, "/tmp"), (own, str(own))):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.setenv("TMPDIR", str(folder))
        assert ownership.temporary_directory() == expected
        assert proot_start._place() == expected
        with pyxis_task._file("#!/bin/sh\n") as path:
            assert os.path.dirname(path) == expected
