"""Faults of a cluster's nodes that health certificates must find: each is real, and ends with its block."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_jobs import write_job
from clusters import Cluster

#: What a job with the fault needs besides: variables of the shell that submits it, lines of its file.
Setting = dict[str, str]
#: The node with the fault.
NODE = "c2"


@dataclass(frozen=True)
class Fault:
    """`mark`: what the certificate says of it, as a pattern. `needs`: a program that makes it."""

    name: str
    mark: str
    begin: Callable[[Cluster], AbstractContextManager[Setting]]
    more: str = ""
    script: str = "pass"
    needs: str = "bash"


def _program(up: Cluster, name: str, text: str) -> Setting:
    """A program of the site before the real one on PATH, there and on the nodes."""
    folder = up.home / f"site-{name}"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{up.path}"}


@contextlib.contextmanager
def wrong_masks(up: Cluster) -> Iterator[Setting]:
    """The site's srun binds every task to the first processor."""
    yield _program(up, "srun", 'exec /usr/bin/srun --cpu-bind=mask_cpu:0x1 "$@"')


def _library(up: Cluster, name: str, text: str) -> Path:
    """A shared library in a directory of its own on all nodes."""
    folder = up.home / f"library-{name}"
    folder.mkdir(exist_ok=True)
    (folder / "source.c").write_text(text)
    if not (folder / name).exists():
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / name, folder / "source.c"], check=True)
    return folder / name


#: The kernel has one clock for all namespaces; what the C library says of it is three seconds ahead.
_CLOCK = r"""
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
  int code = syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += 3;
  return code;
}
int gettimeofday(struct timeval *now, void *zone) {
  int code = syscall(SYS_gettimeofday, now, zone);
  now->tv_sec += 3;
  return code;
}
time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return to ? (*to = now.tv_sec) : now.tv_sec;
}
"""


@contextlib.contextmanager
def skewed_clock(up: Cluster) -> Iterator[Setting]:
    """All that the node's bash starts has another time."""
    library = _library(up, "libclock.so", _CLOCK)
    yield _program(
        up,
        "bash",
        f'[ "$(</proc/sys/kernel/hostname)" != {NODE} ] || export LD_PRELOAD={library}\nexec /bin/bash "$@"',
    )


#: NVML's answers, of which the processes on a GPU are those that hold its device open. The lab's nodes have
#: the devices, and no GPU.
_NVML = r"""
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, part; } process;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) {
  char path[32];
  for (*count = 0; snprintf(path, 32, "/dev/nvidia%u", *count), !access(path, F_OK); ++*count);
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(size_t index, void **handle) {
  *handle = (void *)(index + 1);
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *found) {
  char path[600], target[64], wanted[32];
  unsigned most = *count;
  struct dirent *each, *file;
  DIR *all = opendir("/proc"), *files;
  snprintf(wanted, 32, "/dev/nvidia%u", (unsigned)(size_t)handle - 1);
  for (*count = 0; (each = readdir(all));) {
    snprintf(path, 600, "/proc/%s/fd", each->d_name);
    if (!atoi(each->d_name) || !(files = opendir(path))) continue;
    while ((file = readdir(files))) {
      snprintf(path, 600, "/proc/%s/fd/%s", each->d_name, file->d_name);
      ssize_t size = readlink(path, target, 63);
      if (size > 0 && (target[size] = 0, !strcmp(target, wanted)) && *count < most) {
        found[(*count)++].pid = atoi(each->d_name);
        break;
      }
    }
    closedir(files);
  }
  closedir(all);
  return 0;
}
"""


@contextlib.contextmanager
def unused_gpus(up: Cluster) -> Iterator[Setting]:
    """All ranks of a node open its first GPU."""
    yield {"LD_LIBRARY_PATH": str(_library(up, "libnvidia-ml.so.1", _NVML).parent)}


FAULTS = (
    Fault("wrong masks", r"the ranks may use 1 processor, and the job requested 2|2 ranks share 1 processor",
          wrong_masks),
    Fault("unused GPUs", r"the ranks use 1 of \d GPUs", unused_gpus, "gpus_per_rank = {gpus}",
          "import time; gpu = open('/dev/nvidia0'); time.sleep(12)", "gcc"),
    Fault("skewed clock", r"the clocks of c2 and c1 differ by [234]\.\d s", skewed_clock,
          needs="gcc"),
)  # fmt: skip


def certified(
    up: Cluster,
    health: str,
    fault: Fault | None = None,
    environment: Setting | None = None,
    *,
    script: str = "",
    gpus: int = 0,
    more: str = "",
    options: Sequence[str] = (),
) -> tuple[int, dict[str, Any], str]:
    """Exit code, status and log of a job on both nodes. `gpus`: of a node with such a fault; `more`: lines at
    the end of its file; `options`: of `submit`."""
    job = write_job(
        up, "certified", Path("/usr/bin/python3"), script or (fault.script if fault else "pass"), ranks=1,
        more=f'engine = "native"\nhealth = "{health}"',
    )  # fmt: skip
    topology = "cpus_per_rank = 2\n" + (fault.more.format(gpus=gpus) if fault else "")
    text = job.read_text().replace("[topology]", f"[topology]\n{topology}")
    job.write_text(f'{text}[scheduling]\noptions = ["--nodelist=c1,c2"]\n{more}')
    words = ["bareboat", "submit", "--json", str(job), "--launcher", "ranks", *options]
    run = json.loads(up.login(words, cwd=job.parent, environment=environment).stdout)["run_id"]
    code = up.login(["bareboat", "wait", run], check=False, timeout_s=7200).returncode
    log = up.login(["bareboat", "logs", run], check=False)
    status = up.login(["bareboat", "status", "--json", run], check=False)
    return code, json.loads(status.stdout)[0], log.stdout + log.stderr
