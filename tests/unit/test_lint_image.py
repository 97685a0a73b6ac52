"""The rules about images: each with one that trips it and one that does not."""

import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import make_driver, make_site
from stored import image_of

from bareboat.lint.registry import RULES
from bareboat.model import (
    CudaCompat,
    HostLibrary,
    MpiFacts,
    MpiFamily,
    Pmi,
    Prefix,
    Process,
    SchedulerFacts,
)
from bareboat_images.lint import census, check, entries, image, systems
from bareboat_images.lint.entries import Item
from bareboat_images.lint.rule import Finding, Severity
from bareboat_images.oci import documents
from bareboat_images.store import Store

MB = 1_000_000
KEY = "-----BEGIN RSA PRIVATE KEY-----\nabc\n"
#: What every image in these tests has, so that it trips no rule.
WHOLE: dict[str, str | None] = {
    "proc": None, "sys": None, "dev": None, "tmp": None, "etc/passwd": "", "etc/group": "", "etc/hosts": "",
    "etc/resolv.conf": "", "bin/sh": "#!", "home": None,
}  # fmt: skip
SITE = make_site(glibc="2.34", file_systems=())


def subject(store: Store, *trees: dict[str, str | None], **facts: Any) -> image.ImageSubject:
    """An image of these layers on a whole one. `facts`: those of the image, and `site`, `execution`,
    `commands`, `inode_quota`."""
    own = {
        name: facts.pop(name) for name in ("site", "execution", "commands", "inode_quota") if name in facts
    }
    made = msgspec.structs.replace(image_of(store, WHOLE, *trees), **facts)
    found = image.read(store, made)
    return dataclasses.replace(found, **own)


def findings(store: Store, *trees: dict[str, str | None], **facts: Any) -> list[Finding]:
    return check.image(subject(store, *trees, **facts), rules=RULES)


def codes(store: Store, *trees: dict[str, str | None], **facts: Any) -> set[str]:
    return {each.code for each in findings(store, *trees, **facts)}


def test_a_plain_image_trips_no_rule(store: Store) -> None:
    assert findings(store, {"opt/tool/bin/x": "x"}, site=SITE, glibc="2.36") == []


FILES = [
    ("BB1001", {"var/lib/apt/lists/a_Packages": "x" * MB}, {"var/lib/dpkg/status": "x" * MB}),
    ("BB1001", {"var/cache/dnf/x/a.rpm": "x" * MB}, {"var/cache/man/index": "x" * MB}),
    ("BB1002", {"root/.cache/pip/http/a": "x" * MB}, {"opt/pip/http/a": "x" * MB}),
    ("BB1002", {"opt/conda/pkgs/a/b": "x" * MB, "opt/conda/conda-meta/x": ""}, {"opt/x/pkgs/a": "x" * MB}),
    ("BB1002", {"usr/local/cargo/registry/a": "x" * MB}, {"usr/local/cargo/bin/a": "x" * MB}),
    ("BB1003", {"tmp/a": "x"}, {"opt/tmp/a": "x"}),
    ("BB1003", {"opt/a.tar.gz": "x" * MB}, {"opt/share/a.tar.gz": "x" * MB}),
    ("BB1003", {"opt/core.123": "x" * MB}, {"opt/core.py": "x" * MB}),
    ("BB1006", {"opt/a/.git/objects/a": "x"}, {"opt/a/git/objects/a": "x"}),
    ("BB1101", {"root/conda/bin/python": "x" * MB}, {"root/.bashrc": "x"}),
    ("BB1101", {"root/.local/lib/python3.11/site-packages/a.py": "x" * MB}, {"opt/.local/a": "x" * MB}),
    ("BB1103", {"opt/e/__editable__.a-1.pth": "/src"}, {"opt/e/a.pth": "/src"}),
    ("BB1103", {"opt/e/easy-install.pth": "/src\n"}, {"opt/e/easy-install.pth": "./a.egg\n"}),
    ("BB1103", {"opt/a-1.dist-info/direct_url.json": '{"dir_info": {"editable": true}}'},
     {"opt/a-1.dist-info/direct_url.json": '{"dir_info": {}}'}),
    ("BB1701", {"opt/key.pem": KEY}, {"opt/key.pem": "-----BEGIN CERTIFICATE-----"}),
    ("BB1701", {"etc/ssh/ssh_host_rsa_key": KEY}, {"etc/ssh/ssh_host_rsa_key.pub": KEY}),
    ("BB1702", {"root/.aws/credentials": "aws_secret_access_key = " + "a" * 40},
     {"root/.aws/credentials": "region = x"}),
    ("BB1702", {"root/.netrc": "machine a.org login b password c"}, {"root/.netrc": "# nothing"}),
    ("BB1702", {"root/.docker/config.json": '{"auths": {"x": {"auth": "dXNlcjpwYXNz"}}}'},
     {"opt/config.json": '{"auths": {"x": {"auth": "dXNlcjpwYXNz"}}}'}),
    ("BB1702", {"opt/app/.env": "DB_PASSWORD=s3cr3tvalue\n"}, {"opt/app/.env": "DEBUG=1\n"}),
    ("BB1702", {"etc/pip.conf": "index-url = https://me:s3cr3t@h.org/simple"},
     {"etc/pip.conf": "index-url = https://h.org/simple"}),
    ("BB1702", {"root/.cache/huggingface/token": "hf_" + "a" * 34}, {"opt/token": "x" * 40}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "bad", "good"), FILES)
def test_files(store: Store, code: str, bad: dict[str, str | None], good: dict[str, str | None]) -> None:
    assert code in codes(store, bad)
    assert code not in codes(store, good)


FACTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("BB1104", {"environment": {"PATH": "/root/bin:/usr/bin"}}, {"environment": {"PATH": "/usr/bin"}}),
    ("BB1202", {"process": Process(entrypoint=("/usr/bin/sudo", "x"))},
     {"process": Process(entrypoint=("x",))}),
    ("BB1301", {"site": make_site(gpu_drivers=(make_driver(glibc="2.38"),)), "glibc": "2.31"},
     {"site": make_site(gpu_drivers=(make_driver(glibc="2.17"),)), "glibc": "2.31"}),
    ("BB1303", {"site": make_site(gpu_drivers=(make_driver(),)), "cuda": "13.0"},
     {"site": make_site(gpu_drivers=(make_driver(),)), "cuda": "12.4"}),
    ("BB1304", {"site": make_site(gpu_capabilities=("9.0",)), "gpu_code": {"torch": ("sm_70",)}},
     {"site": make_site(gpu_capabilities=("9.0",)), "gpu_code": {"torch": ("sm_90",)}}),
    ("BB1305", {"site": make_site(gpu_drivers=(make_driver(),)), "frameworks": {"torch": "2.4.0+rocm6.1"}},
     {"site": make_site(gpu_drivers=(make_driver(),)), "frameworks": {"torch": "2.4.0+cu121"}}),
    ("BB1307", {"site": SITE, "architecture": "arm64"}, {"site": SITE, "architecture": "amd64"}),
    ("BB1501", {"inode_quota": 5}, {"inode_quota": 500}),
    ("BB1703", {"execution": documents.Execution(env=["API_TOKEN=abcdefgh"])},
     {"execution": documents.Execution(env=["API_TOKEN_FILE=/run/x"])}),
    ("BB1703", {"commands": ("ARG KEY=ghp_" + "a" * 36,)}, {"commands": ("ARG KEY=v1.2",)}),
    ("BB1703", {"commands": ("RUN curl https://me:s3cr3t@h.org/x",)}, {"commands": ("RUN curl https://h.org/x",)}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "bad", "good"), FACTS)
def test_facts(store: Store, code: str, bad: dict[str, Any], good: dict[str, Any]) -> None:
    assert code in codes(store, **bad)
    assert code not in codes(store, **good)


def mpi(**facts: Any) -> dict[str, Any]:
    library = {"family": MpiFamily.OPENMPI, "version": "4.1.4", "library": "/usr/lib/libmpi.so.40"} | facts
    return {"mpis": (MpiFacts(**library),), "mpi_users": {"mpi4py": ("libmpi.so.40",)}, "glibc": "2.36"}


def test_mpi_without_a_common_protocol(store: Store) -> None:
    assert "BB1401" in codes(store, **mpi(speaks=()))
    assert "BB1401" not in codes(store, **mpi(speaks=(Pmi.PMIX,)))
    mpich = {"family": MpiFamily.MPICH, "version": "5.0.2"}
    assert "BB1401" in codes(
        store, **mpi(**mpich, speaks=(Pmi.PMI1,)) | {"mpi_users": {"x": ("libmpi.so.12",)}}
    )


def test_mpi_that_nothing_starts(store: Store) -> None:
    slurm = SchedulerFacts(name="slurm", version="23.11", mpi_plugins=("pmix",))
    unable = make_site(schedulers=(msgspec.structs.replace(slurm, mpi_plugins=("none",)),))
    assert "BB1402" in codes(store, **mpi(speaks=()), site=unable)
    assert "BB1402" not in codes(store, **mpi(speaks=(Pmi.PMIX,)), site=make_site(schedulers=(slurm,)))


def test_two_families_of_mpi(store: Store) -> None:
    one = mpi(speaks=(Pmi.PMIX,))
    other = MpiFacts(family=MpiFamily.MPICH, version="4.2", library="/opt/mpich/lib/libmpi.so.12")
    assert "BB1403" in codes(store, **one | {"mpis": (*one["mpis"], other)})
    assert "BB1403" not in codes(store, **one)


def test_host_mpi_with_a_newer_libc(store: Store) -> None:
    host = MpiFacts(
        family=MpiFamily.OPENMPI, version="5.0.8", library="/usr/lib/libmpi.so.40",
        runtime=HostLibrary(libraries=(), glibc="2.39", glibc_by="libpmix.so.2"),
    )  # fmt: skip
    assert "BB1301" in codes(store, **mpi(speaks=(Pmi.PMIX,)), site=make_site(mpis=(host,)))


def test_forward_compatibility_is_said(store: Store) -> None:
    site = make_site(gpu_drivers=(make_driver(version="535.104.05", cuda="12.2"),))
    compat = CudaCompat(folder="/usr/local/cuda/compat", driver="580.65.06")
    (found,) = [
        each for each in findings(store, cuda="13.0", cuda_compat=compat, site=site, glibc="2.36")
        if each.code == "BB1303"
    ]  # fmt: skip
    assert found.severity is Severity.INFO
    assert "forward-compatibility" in found.message


def test_musl(store: Store) -> None:
    assert "BB1308" in codes(store, {"lib/ld-musl-x86_64.so.1": "x"})
    assert "BB1308" not in codes(store, {"lib/ld-linux.so.2": "x"})


def test_a_start_script_that_needs_root(store: Store) -> None:
    process = Process(entrypoint=("/start.sh",))
    assert "BB1202" in codes(
        store, {"start.sh": '#!/bin/sh\nchown -R app /data\nexec gosu app "$@"\n'}, process=process
    )
    assert "BB1202" not in codes(store, {"start.sh": '#!/bin/sh\n# chown x\nexec "$@"\n'}, process=process)


def test_compiled_for_newer_processors(store: Store) -> None:
    target = {"opt/sw/linux-ubuntu22.04-zen4/gcc/x": "x"}
    assert "BB1306" in codes(store, target, site=SITE)  # EPYC 7543
    assert "BB1306" not in codes(store, target, site=make_site(cpu_model="AMD EPYC 9654 96-Core Processor"))
    assert "BB1306" not in codes(store, target, site=make_site(cpu_model="unknown"))


def test_links_of_a_layer_lead_nowhere_outside(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key.pem").write_text(KEY)
    made = subject(store, {"opt/key.pem": f"-> {outside}/key.pem", "srv": f"-> {outside}"})
    assert check.image(made, rules=RULES) == []
    assert made.head("/srv/key.pem", 2) == made.head("/opt/key.pem", 2) == b""
    assert made.head("/srv/key.pem", 99) == b""


def test_a_deep_tree_and_many_entries(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "/".join("d" * 1 for _ in range(1500))
    items = [folder("/" + deep[: 2 * n + 1]) for n in range(1500)]
    found = take(items, [file("/d/x"), gone("/", "opaque")], [gone("/d")])
    assert not found.exists("/d")
    monkeypatch.setattr(entries, "MOST_ENTRIES", 5)
    made = subject(store, {"tmp/a": "x"})
    assert "more than" in made.unread[0]


def test_secrets_are_never_shown(store: Store) -> None:
    secret = "s3cr3tvalue0123456789"
    found = findings(
        store,
        {"root/.netrc": f"machine a login b password {secret}", "opt/.env": f"API_KEY={secret}"},
        execution=documents.Execution(env=[f"PASSWORD={secret}"]),
        commands=(f"RUN curl https://me:{secret}@h.org/x",),
    )
    assert {"BB1702", "BB1703"} <= {each.code for each in found}
    for each in found:
        assert secret not in each.message + each.remedy


def test_the_most_expensive_finding_comes_first(store: Store) -> None:
    found = findings(store, {"tmp/a": "x" * 10 * MB, "var/lib/apt/lists/b": "x" * 20 * MB, "opt/k.pem": KEY})
    assert [each.code for each in found] == ["BB1001", "BB1003", "BB1701"]
    assert found[0].share == pytest.approx(2 / 3, abs=0.01)


def test_the_home_of_a_captured_environment_is_only_named(store: Store) -> None:
    tree: dict[str, str | None] = {"home/ada/env/lib/a.so": "x" * MB}
    prefixes = (Prefix(path="/home/ada/env", layer="sha256:" + "a" * 64),)
    path = {"environment": {"PATH": "/home/ada/env/bin"}}
    assert codes(store, tree, **path) == {"BB1101", "BB1104"}
    (found,) = findings(store, tree, **path, prefixes=prefixes)
    assert (found.code, found.severity, found.saves) == ("BB1101", Severity.INFO, False)


# The census.


def take(*layers: list[Item]) -> census.Census:
    return census.take(layers)


def file(path: str, size: int = 100, mode: int = 0o644, *, gains: bool = False) -> Item:
    return Item(path, "file", size, mode, gains)


def folder(path: str, mode: int = 0o755) -> Item:
    return Item(path, "folder", 0, mode, False)


def gone(path: str, kind: str = "whiteout") -> Item:
    return Item(path, kind, 0, 0, False)


def test_deleted_and_replaced_bytes() -> None:
    found = take(
        [folder("/a"), folder("/a/b"), file("/a/b/c", 1000), file("/a/d", 10), file("/e", 7)],
        [gone("/a/b"), file("/e", 7), file("/a/d", 11)],
    )
    hidden = {each.kind: each.group.size_bytes for each in found.hidden.values()}
    assert hidden == {"deleted": 1000, "copied": 7, "replaced": 10}
    assert not found.exists("/a/b/c")
    assert not found.exists("/a/b")
    assert found.exists("/a/d")


@pytest.mark.parametrize("late", [False, True])
def test_an_opaque_directory_hides_only_what_is_below(late: bool) -> None:
    items = [file("/a/new", 5)]
    upper = [*items, gone("/a", "opaque")] if late else [gone("/a", "opaque"), *items]
    found = take(
        [folder("/a"), file("/a/old", 50), folder("/a/s"), file("/a/s/x", 500)], [folder("/a"), *upper]
    )
    assert {each.group.size_bytes for each in found.hidden.values()} == {550}
    assert found.exists("/a/new")
    assert not found.exists("/a/s/x")


def test_a_directory_that_becomes_a_file_hides_its_files() -> None:
    found = take([folder("/a"), file("/a/x", 50)], [file("/a", 3)])
    assert [(each.kind, each.group.size_bytes) for each in found.hidden.values()] == [("replaced", 50)]


def test_each_byte_counts_once() -> None:
    found = take(
        [
            file("/tmp/x", 5),
            file("/root/.cache/pip/a", 7),
            file("/root/.local/a", 11),
            file("/root/a/.git/b", 13),
        ]
    )
    assert sum(group.size_bytes for group in found.groups.values()) == 36
    assert {group.label for group in found.groups.values()} == {
        "temporary",
        "language cache",
        "home",
        "history",
    }


def test_programs_that_gain_privileges() -> None:
    found = take(
        [file("/opt/a", mode=0o4755), file("/opt/b", gains=True), file("/opt/c", mode=0o4644), file("/opt/d")]
    )
    assert [path for path, _ in found.marked["gains"]] == ["/opt/a", "/opt/b"]


def elf(level: int) -> bytes:
    """A file with the notes of a dynamic loader: its ABI tag, and the processor that it needs."""
    tag = struct.pack("<III4sIIII", 4, 16, 1, b"GNU\0", 0, 3, 2, 0)
    isa = struct.pack("<IIII", 0xC0008002, 4, (1 << level) - 1, 0)
    notes = struct.pack("<III4s", 4, len(isa), 5, b"GNU\0") + isa
    table = b"".join(
        struct.pack("<IIQQQQQQ", 4, 4, at, at, at, size, size, align)
        for at, size, align in ((176, len(tag), 4), (176 + len(tag), len(notes), 8))
    )
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    )
    return head + table + tag + notes


@pytest.mark.parametrize("damage", [None, *range(0, 250, 7)])
def test_elf_properties(tmp_path: Path, damage: int | None) -> None:
    path = tmp_path / "x"
    path.write_bytes(elf(3)[:damage])
    with path.open("rb") as stream:
        found = systems.needed_level(stream.fileno())
    assert found in ((3,) if damage is None else (0, 3))


def test_a_loader_that_needs_more_than_the_site_has(store: Store) -> None:
    path = "lib64/ld-linux-x86-64.so.2"
    made = subject(store, {path: "x"}, site=SITE)
    place = store.layer(made.image.layers[1].diff_id) / path
    for content, expected in ((elf(2), set()), (elf(4), {"BB1306"})):
        place.write_bytes(content)
        assert {each.code for each in check.image(made, rules=RULES)} == expected


def test_processors_by_name() -> None:
    for name, level in {
        "AMD EPYC 7543 32-Core Processor": 3, "AMD EPYC 9654 96-Core Processor": 4, "AMD EPYC": 0,
        "Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz": 4, "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz": 3,
        "Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz": 2, "ARM Neoverse-V1": 0, "": 0,
    }.items():  # fmt: skip
        assert systems.level_of(name) == level, name


def test_every_rule_of_images_is_tested_here() -> None:
    text = Path(__file__).read_text() + (Path(__file__).parents[1] / "contract" / "test_lint.py").read_text()
    for rule in RULES.values():
        if rule.image is not None:
            assert rule.code in text, rule.code


def test_json_is_valid_for_odd_names(store: Store) -> None:
    from bareboat_images.lint.report import Report

    found = findings(store, {"tmp/a\udcff\x1b": "x"})
    report = Report(findings=found, name="x\x1b", is_image=True)
    json.dumps(report.json())
    json.dumps(report.sarif(RULES))
    assert "\x1b" not in report.text()
