"""The table of mounts, and the names of file systems: one reader, whose answers all rooms share."""

import pytest
from builders import make_image, make_job, make_rootfs, make_site

from bareboat.model import FileSystem, SchedulerFacts, Topology
from bareboat.plan import plan
from bareboat_base.files import kinds
from bareboat_base.files.mounts import find_mount

MOUNTINFO = r"""
22 28 0:21 / /sys rw,nosuid - sysfs sysfs rw
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
40 28 0:35 / /home rw,nosuid,relatime shared:9 - nfs4 filer:/export/home rw,vers=4.2,hard
41 28 0:36 / /scratch rw,noexec master:2 - lustre mds1@o2ib:mds2@o2ib:/scratch ro,flock
42 41 0:37 /a\040b /scratch/with\040space rw shared:7 master:2 - fuse.beegfs beegfs_nodev rw
43 28 0:38 / /scratchy rw - gpfs gpfs0 rw
44 40 0:39 / /home rw - tmpfs none rw
broken line
45 28 0:40 / /x
46 28 0:41 / /cloud rw - fuse.ceph-fuse ceph-fuse rw
47 28 0:42 / /win rw - smb3 //filer/x rw
48 28 0:43 / /sq ro - fuse.squashfuse sq ro
"""


@pytest.mark.parametrize(
    ("path", "point", "kind"),
    [
        ("/", "/", "ext4"),
        ("/usr/lib", "/", "ext4"),
        ("/scratch", "/scratch", "lustre"),
        ("/scratch/ada", "/scratch", "lustre"),
        ("/scratch/with space/ada", "/scratch/with space", "beegfs"),
        ("/scratchy/ada", "/scratchy", "gpfs"),
        ("/home/ada", "/home", "tmpfs"),
        ("/cloud", "/cloud", "ceph"),
        ("/win/x", "/win", "cifs"),
        ("/sq", "/sq", "fuse.squashfuse"),
    ],
)
def test_mountinfo(path: str, point: str, kind: str) -> None:
    found = find_mount(MOUNTINFO, path)
    assert (found.point, found.kind) == (point, kind)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("nfs", "nfs"), ("nfs4", "nfs"), ("smb3", "cifs"), ("smb2", "cifs"), ("pvfs2", "orangefs"), ("9p", "9p"),
     ("fuse.gfarm2fs", "gfarm2fs"), ("fuse.ceph", "ceph"), ("fuse.ceph-fuse", "ceph")],
)  # fmt: skip
def test_a_networked_file_system_has_one_name(kind: str, name: str) -> None:
    assert kinds.common_name(kind) == name
    assert kinds.is_networked(kind)


@pytest.mark.parametrize("kind", [*sorted(kinds.NETWORKED), "nfs4", "smb3", "fuse.glusterfs", "fuse.sshfs"])
def test_delivery_and_probe_agree_on_what_is_networked(kind: str) -> None:
    """NFSv4 was called networked by one reader and local by another, and no node got its own copy."""
    store = FileSystem(purpose="store", path="/s", kind=kind, free_bytes=10**12, free_inodes=10**7)
    job = make_job(scheduler="slurm", launcher="ranks", topology=Topology(nodes=2, ranks_per_node=2))
    site = make_site(file_systems=(store,), schedulers=(SchedulerFacts(name="slurm", version="1"),))
    image = make_image()
    made = plan(job, image, make_rootfs(image), site)
    (delivery,) = [each for each in made.decisions if each.subject == "delivery"]
    assert delivery.choice.startswith("node:")
