"""Where the store goes: the choice and the parsers are pure; this machine answers quickly."""

import functools
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bareboat.config import is_of_a_job
from bareboat.store_place import Machine, Spot, choose
from bareboat_base.files import mounts
from bareboat_base.files.mounts import Mount
from bareboat_images import place
from bareboat_images.place import Limit, Room

TB = 10**12


@dataclass
class Site:
    """A machine that was never there: folder -> what is seen, folder -> room."""

    spots: dict[str, Spot] = field(default_factory=dict)
    rooms: dict[str, Room] = field(default_factory=dict)
    stores: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def look(self, folder: str, stores: Sequence[str]) -> Spot:
        seen = self.spots.get(folder, spot(folder=False, writable=False))
        found = next((path for path in stores if path in self.stores), None)
        return spot(**{name: getattr(seen, name) for name in Spot.__struct_fields__} | {"store": found})

    def room(self, path: str) -> Room:
        self.asked.append(path)
        return self.rooms.get(path, make_room(TB, 10**7))


def spot(**changes: object) -> Spot:
    facts: dict[str, object] = {
        "folder": True, "writable": True, "owned": True, "kind": "lustre", "options": (), "store": None,
    }  # fmt: skip
    return Spot(**(facts | changes))  # type: ignore[arg-type]


def make_room(
    free_bytes: int, free_inodes: int | None, kind: str = "lustre", by: str = "file system"
) -> Room:
    return Room(free_bytes=free_bytes, free_inodes=free_inodes, kind=kind, limited_by=by)


HOME = "/home/ada"
DATA = "/home/ada/.local/share"
USER = {"USER": "ada"}


# -- the choice --------------------------------------------------------------------------------------


def test_scratch_comes_before_home() -> None:
    site = Site(spots={"/scratch/ada": spot(), DATA: spot(kind="nfs")})
    found = choose(USER | {"SCRATCH": "/scratch/ada"}, HOME, site)
    assert found.path == "/scratch/ada/bareboat"
    assert site.asked == ["/scratch/ada"]


def test_a_place_that_a_stranger_prepared_is_passed_over() -> None:
    prepared = spot(doubt="/scratch/ada belongs to eve")
    site = Site(spots={"/scratch/ada": prepared, DATA: spot(kind="nfs", doubt="/home is writable")})
    found = choose(USER | {"SCRATCH": "/scratch/ada"}, HOME, site)
    assert found.path == f"{DATA}/bareboat"
    (avoided,) = found.rejected
    assert avoided.reason == "$SCRATCH: others can change it: /scratch/ada belongs to eve"


def test_the_doubt_is_that_about_the_stores_path(tmp_path: Path) -> None:
    stores = (str(tmp_path / "bareboat"), str(tmp_path / "ada/bareboat"))
    assert Machine().look(str(tmp_path), stores).doubt == ""
    tmp_path.chmod(0o777)
    assert Machine().look(str(tmp_path), stores).doubt == f"{tmp_path} is writable by every user"
    tmp_path.chmod(0o1777)
    assert Machine().look(str(tmp_path), stores).doubt == ""


def test_home_serves_where_there_is_nothing_else() -> None:
    site = Site(spots={DATA: spot(folder=False, kind="ext4")})
    found = choose(USER, HOME, site)
    assert found.path == f"{DATA}/bareboat"
    assert found.reason.startswith("the home directory has")


def test_a_store_that_is_there_wins_and_nothing_is_measured() -> None:
    site = Site(
        spots={"/scratch/ada": spot(), "/work/ada": spot(), DATA: spot()}, stores=(f"{DATA}/bareboat",)
    )
    found = choose(USER | {"SCRATCH": "/scratch/ada", "WORK": "/work/ada"}, HOME, site)
    assert found.path == f"{DATA}/bareboat"
    assert site.asked == []
    site.stores = ("/work/ada/bareboat", f"{DATA}/bareboat")
    assert choose(USER | {"WORK": "/work/ada"}, HOME, site).path == "/work/ada/bareboat"


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (spot(options=("ro",)), "read-only"),
        (spot(folder=False), "it does not exist"),
        (spot(writable=False), "cannot write"),
        (spot(kind="tmpfs"), "in memory (tmpfs) and is not permanent"),
        (spot(options=("noexec", "nosuid")), "noexec"),
    ],
)
def test_what_cannot_hold_a_store_is_told(seen: Spot, reason: str) -> None:
    site = Site(spots={"/scratch/ada": seen, "/work/ada": spot()})
    found = choose(USER | {"SCRATCH": "/scratch/ada", "WORK": "/work/ada"}, HOME, site)
    assert found.path == "/work/ada/bareboat"
    (avoided,) = found.rejected
    assert avoided.choice == "/scratch/ada/bareboat"
    assert avoided.reason.startswith("$SCRATCH: ")
    assert reason in avoided.reason


def test_the_first_place_with_enough_room_is_taken() -> None:
    site = Site(
        spots={"/scratch/ada": spot(), "/work/ada": spot(), DATA: spot()},
        rooms={
            "/scratch/ada": make_room(5 * TB, 1000, by="quota"),
            "/work/ada": make_room(20 * 10**9, None, kind="beegfs"),
        },
    )
    found = choose(USER | {"SCRATCH": "/scratch/ada", "WORK": "/work/ada"}, HOME, site)
    assert found.path == "/work/ada/bareboat"
    assert found.reason == "$WORK has 20 GB free (beegfs)"


def test_without_enough_room_anywhere_the_most_is_taken() -> None:
    site = Site(
        spots={"/scratch/ada": spot(), DATA: spot(kind="nfs")},
        rooms={"/scratch/ada": make_room(3 * 10**9, 10**6), DATA: make_room(10**9, 10**6, kind="nfs")},
    )
    found = choose(USER | {"SCRATCH": "/scratch/ada"}, HOME, site)
    assert found.path == "/scratch/ada/bareboat"
    assert [avoided.choice for avoided in found.rejected] == [f"{DATA}/bareboat"]


def test_in_a_folder_of_several_users_each_has_one_of_their_own() -> None:
    site = Site(spots={"/scratch": spot(owned=False), "/project/x/ada": spot(owned=False)})
    assert choose(USER | {"SCRATCH": "/scratch"}, HOME, site).path == "/scratch/ada/bareboat"
    assert choose(USER | {"PROJECT": "/project/x/ada"}, HOME, site).path == "/project/x/ada/bareboat"
    assert choose({"SCRATCH": "/scratch"}, HOME, site).path == "/scratch/ada/bareboat"  # of the home's name


@pytest.mark.parametrize(
    ("name", "job", "value"),
    [
        ("SLURM_JOB_ID", "4711", "4711"),
        ("PBS_JOBID", "4711", "4711.server"),
        ("JOB_ID", "4711", "4711"),
        ("FLUX_JOB_ID", "ƒAbc", "ƒAbc"),
    ],
)
def test_a_place_of_the_job_alone_is_not_taken(name: str, job: str, value: str) -> None:
    site = Site(spots={f"/local/job-{job}": spot(), "/work/ada": spot()})
    environment = USER | {"SCRATCH": f"/local/job-{job}", "WORK": "/work/ada", name: value}
    found = choose(environment, HOME, site, functools.partial(is_of_a_job, environment))
    assert found.path == "/work/ada/bareboat"
    assert found.rejected[0].reason == "$SCRATCH is removed when the job ends"


def test_odd_values_of_variables_are_passed_over() -> None:
    site = Site(spots={DATA: spot(), "/data/ada": spot(), "/s": spot()})
    environment = {"SCRATCH": "scratch", "WORK": "", "PROJECT": "/", "WORKDIR": HOME, "PSCRATCH": "/a\0b"}
    assert choose(USER | environment, HOME, site).path == f"{DATA}/bareboat"
    assert choose(USER | {"XDG_DATA_HOME": "relative"}, HOME, site).path == f"{DATA}/bareboat"
    elsewhere = choose(USER | {"XDG_DATA_HOME": "/data/ada"}, HOME, site)
    assert elsewhere.path == "/data/ada/bareboat"
    assert elsewhere.reason.startswith("$XDG_DATA_HOME has")
    twice = choose(USER | {"SCRATCH": "/s/", "PSCRATCH": "/s"}, HOME, site)
    assert twice.path == "/s/bareboat"


# -- this machine ------------------------------------------------------------------------------------


def test_a_store_is_found_and_a_strangers_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch, home = tmp_path / "scratch", tmp_path / "home"
    (scratch / "bareboat").mkdir(parents=True)
    (scratch / "bareboat/version").write_text("2\n")
    home.mkdir()
    environment = {"SCRATCH": str(scratch), "USER": "ada"}
    found = choose(environment, str(home), Machine())
    assert found.path == str(scratch / "bareboat")
    assert found.reason == "it already exists in $SCRATCH"
    monkeypatch.setattr("bareboat.store_place.os.getuid", lambda: os.stat(tmp_path).st_uid + 1)
    stranger = choose(environment, str(home), Machine())
    assert "it already exists" not in stranger.reason


def test_room_of_a_path_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = Room.at(str(tmp_path / "a/b/c"))
    assert found.limited_by == "file system"
    assert found.free_bytes > 0
    assert found.kind == mounts.mount_of(str(tmp_path)).kind != "unknown"


def fake_tool(folder: Path, name: str, output: str, *, code: int = 0) -> None:
    """A program that replays what the real one printed, and keeps how it was called."""
    path = folder / name
    called = f"printf '%s\\n' \"$*\" > {folder}/{name}.called"
    path.write_text(f"#!/bin/sh\n{called}\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_quota_leaves_less_than_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = Mount(point="/lustre/work", source="mgs@o2ib:/work", kind="lustre", options=())
    monkeypatch.setattr("bareboat_images.place.mount_of", lambda _path: mount)
    fake_tool(tmp_path, "lfs", "  /lustre/work  1000  5000  6000  -  10  500  600  -")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = Room.at(str(tmp_path))
    assert found == Room(free_bytes=4000 * 1024, free_inodes=490, kind="lustre", limited_by="quota")
    called = (tmp_path / "lfs.called").read_text()
    assert called == f"quota -q -u {os.getuid()} /lustre/work\n"


def test_a_quota_tool_that_fails_or_hangs_sets_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = Mount(point="/work", source="o2ib:/work", kind="lustre", options=())
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    fake_tool(tmp_path, "lfs", "lfs: cannot reach the server.", code=1)
    assert place.quota(mount) is None
    (tmp_path / "lfs").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("bareboat_images.place._PATIENCE_S", 0.1)
    assert place.quota(mount) is None


# -- parsers -----------------------------------------------------------------------------------------

WORK = Mount(point="/work", source="mgs:/work", kind="lustre", options=())


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("          /work  104   20000   30000       -      25    1000    2000       -",
         Limit(free_bytes=19896 * 1024, free_inodes=975)),
        ("          /work\n                    104   0   30000  -  25  0  0  -",
         Limit(free_bytes=29896 * 1024)),
        ("/work  40000*  20000   30000  6d23h59m46s   25   0   0   -", Limit(free_bytes=-20000 * 1024)),
        ("/work  [104]  20000   30000  -   [25]   10   0   -\nSome errors happened when getting quota info.",
         Limit(free_bytes=19896 * 1024, free_inodes=-15)),
        ("/work  104  0  0  -  25  0  0  -", None),
        ("Permission denied.", None),
        ("/work  104  0", None),
        ("", None),
    ],
)  # fmt: skip
def test_lfs_quota(output: str, expected: Limit | None) -> None:
    assert place.parse_lfs_quota(output, WORK) == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "Disk quotas for user ada (uid 4711): \n"
            "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
            "filer:/export/home  204800  500000  600000       0    1200   10000   20000       0\n",
            Limit(free_bytes=295200 * 1024, free_inodes=8800),
        ),
        (
            "/dev/mapper/a b  604800*  500000  600000  1699999999   1200   0   0       0\n",
            Limit(free_bytes=-104800 * 1024),
        ),
        ("Disk quotas for user ada (uid 4711): none\n", None),
        ("", None),
    ],
)
def test_quota(output: str, expected: Limit | None) -> None:
    assert place.parse_quota(output, WORK) == expected
