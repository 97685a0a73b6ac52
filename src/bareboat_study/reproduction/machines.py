"""Pure: the facts about a machine that can explain a result, without those about its user."""

from __future__ import annotations

import re

from bareboat.model import Site
from bareboat_base.printable import one_line
from bareboat_study.reproduction.document import Machine

_DRIVER = re.compile(r"Kernel Module(?: for \w+)?\s+([0-9.]+)")


def of_site(site: Site) -> Machine:
    """Those of a probe."""
    driver = next(iter(site.gpu_drivers), None)
    return Machine(
        hostname=site.hostname,
        kernel=site.kernel,
        architecture=site.architecture,
        distribution=site.distribution,
        glibc=site.glibc,
        cpu=site.cpu_model,
        cpus=site.cpus,
        mem_bytes=site.mem_bytes,
        gpus=driver.models if driver is not None and driver.models else site.gpus,
        driver=f"{driver.vendor} {driver.version}" if driver is not None else "",
        driver_cuda=(driver.cuda or "") if driver is not None else "",
        fabric=site.network.title if site.network is not None else "",
        mpis=tuple(dict.fromkeys(mpi.title for mpi in site.mpis)),
        schedulers=tuple(f"{each.name} {each.version}".strip() for each in site.schedulers),
    )


def facts(text: str) -> dict[str, str]:
    """The facts that a job script wrote on a node, by their names."""
    lines = (line.partition(" ") for line in text.splitlines()[:20])
    return {name: one_line(value.strip().strip('"')) for name, _, value in lines}


def of_node(text: str, hostname: str) -> Machine | None:
    """Those that the job script wrote on its first node; None where there are none."""
    found = facts(text)
    if not found.get("kernel"):
        return None
    memory = re.search(r"(\d{1,12}) kB", found.get("memory", ""))
    driver = _DRIVER.search(found.get("nvidia", ""))
    return Machine(
        hostname=hostname,
        kernel=found["kernel"],
        distribution=found.get("distribution", ""),
        glibc=found.get("libc", "").removeprefix("glibc").strip(),
        cpu=found.get("cpu", ""),
        mem_bytes=int(memory[1]) * 1024 if memory else 0,
        driver=f"nvidia {driver[1]}" if driver else "",
    )
