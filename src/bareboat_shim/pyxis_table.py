"""What the shims of srun, sbatch and salloc understand besides Slurm's own options: those of Pyxis.

https://github.com/NVIDIA/pyxis/wiki/Usage
"""

from __future__ import annotations

from bareboat_shim.table import Flag, Table, Verb

#: The version of Pyxis whose flags these are.
VERSION = "0.24"

FLAGS = (
    Flag(("--container-image",), "IMAGE",
         "the image: `[USER@][REGISTRY#]IMAGE[:TAG]`, or the path of a SquashFS or SIF file; "
         "the account is that of ~/.docker/config.json", variables=("CONTAINER_IMAGE",)),
    Flag(("--container-mounts",), "SRC[:DST[:FLAGS]][,…]",
         "mount files and directories; `tmpfs:DST` is an empty directory in memory, `umount:DST` "
         "leaves out a mount; flags are separated by `+`", variables=("CONTAINER_MOUNTS",), several=True),
    Flag(("--container-workdir",), "DIR", "the working directory (default: the image's)",
         variables=("CONTAINER_WORKDIR",)),
    Flag(("--container-env",), "NAME[,…]",
         "variables of the shell that override those of the image", variables=("CONTAINER_ENV",)),
    Flag(("--container-mount-home",), meaning="mount the home directory",
         variables=("CONTAINER_MOUNT_HOME",)),
    Flag(("--no-container-mount-home",), meaning="do not mount it (default)"),
    Flag(("--container-writable",), meaning="allow changes everywhere, and discard them (default)",
         variables=("CONTAINER_WRITABLE",)),
    Flag(("--container-readonly",), meaning="a read-only root file system",
         variables=("CONTAINER_READONLY",)),
    Flag(("--container-entrypoint",), meaning="start the command by the image's ENTRYPOINT",
         variables=("CONTAINER_ENTRYPOINT",)),
    Flag(("--no-container-entrypoint",), meaning="start the command itself (default)"),
    Flag(("--container-entrypoint-log",), meaning="no effect: the output of the ENTRYPOINT is always shown",
         variables=("CONTAINER_ENTRYPOINT_LOG",)),
    Flag(("--container-unshare",), "NAME[,…]", "further namespaces: net, ipc, uts",
         variables=("CONTAINER_UNSHARE",)),
    Flag(("--container-remap-root",), meaning="run as root of the container, with your rights outside",
         variables=("CONTAINER_REMAP_ROOT",)),
    Flag(("--no-container-remap-root",), meaning="run as you (default)"),
    Flag(("--environment",), "FILE",
         refused="environment files are not read: --container-image, --container-mounts and --export do it"),
    Flag(("--container-name",), "NAME[:FLAG]",
         "a container that each node keeps, with its changes; the flag is auto, create, exec or no_exec",
         variables=("CONTAINER_NAME",)),
    Flag(("--container-save",), "FILE",
         "write the container to a SquashFS file when the tasks have ended; on one node; requires mksquashfs",
         variables=("CONTAINER_SAVE",)),
)  # fmt: skip

TABLE = Table(
    names=("srun", "sbatch", "salloc"),
    version=VERSION,
    prefixes=("PYXIS_",),
    flags=FLAGS,
    verbs=(
        Verb("srun", "[OPTIONS] COMMAND", "each task's command runs in a container"),
        Verb(
            "sbatch", "[OPTIONS] [SCRIPT]", "the batch script runs in a container; `#SBATCH` lines are read"
        ),
        Verb(
            "salloc",
            "[OPTIONS] [COMMAND]",
            "the steps of the job run in containers, as if each had the flags",
        ),
    ),
    code=1,
    fatal=1,
)

#: Flags of a name: what is done where a container with it exists.
OF_NAMES = ("auto", "create", "exec", "no_exec")
#: Pairs that exclude each other.
OPPOSITES = (
    ("container-mount-home", "no-container-mount-home"),
    ("container-writable", "container-readonly"),
    ("container-entrypoint", "no-container-entrypoint"),
    ("container-remap-root", "no-container-remap-root"),
)

#: Variables of Enroot: name -> what a value other than no does; "" for none, None for a refusal.
ENROOT: dict[str, str | None] = {
    "ENROOT_MOUNT_HOME": "container-mount-home",
    "ENROOT_ROOTFS_WRITABLE": "container-writable",
    "ENROOT_REMAP_ROOT": "container-remap-root",
    "ENROOT_ALLOW_HTTP": "",
    **dict.fromkeys((
        "ENROOT_LIBRARY_PATH", "ENROOT_SYSCONF_PATH", "ENROOT_RUNTIME_PATH", "ENROOT_CONFIG_PATH",
        "ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_TEMP_PATH", "ENROOT_GZIP_PROGRAM",
        "ENROOT_ZSTD_OPTIONS", "ENROOT_SQUASH_OPTIONS", "ENROOT_MAX_PROCESSORS", "ENROOT_MAX_CONNECTIONS",
        "ENROOT_TRANSFER_RETRIES", "ENROOT_TRANSFER_TIMEOUT", "ENROOT_CONNECT_TIMEOUT", "ENROOT_LOGIN_SHELL",
        "ENROOT_ALLOW_SUPERUSER", "ENROOT_RESTRICT_DEV", "ENROOT_NATIVE_OVERLAYFS", "ENROOT_BUNDLE_ALL",
        "ENROOT_BUNDLE_CHECKSUM", "ENROOT_FORCE_OVERRIDE",
    ), ""),
}  # fmt: skip
