"""The networks of a node: a bash script that reads /sys and /proc, and a pure parser. Both serve for
this machine and, through the queue, for a compute node.

https://docs.kernel.org/infiniband/sysfs.html , Documentation/ABI/stable/sysfs-class-infiniband and
Documentation/ABI/testing/sysfs-class-net of the Linux kernel. Slingshot's class is `cxi`
(https://github.com/HewlettPackard/shs-cxi-driver).
"""

from __future__ import annotations

import re
from collections import defaultdict

from bareboat.model.fabric import Interface, Kind, Network, Port
from bareboat.probe.host import RealHost
from bareboat_base.errors import ToolError
from bareboat_base.expressions import expression

#: One line per fact: path, tab, value. Only bash builtins: no process is started for a file. $1: the root
#: directory of the machine's files, for tests.
SCRIPT = r"""
shopt -s nullglob
LC_ALL=C root=${1:-}
tell() { # the first line of each file
  local path value
  for path; do
    value=
    { IFS= read -r value < "$path"; } 2>/dev/null || [ -n "$value" ] || continue
    printf '%s\t%s\n' "${path#"$root"}" "$value"
  done
}
driver() { # of the device that a folder of a class belongs to
  local path line
  for path; do
    while read -r line; do
      case $line in DRIVER=*) printf '%s\t%s\n' "${path#"$root"}" "${line#DRIVER=}" ;; esac
    done < "$path"
  done 2>/dev/null
}
for device in "$root"/sys/class/infiniband/*; do
  tell "$device"/node_type "$device"/ports/*/{state,phys_state,link_layer,rate}
  driver "$device"/device/uevent
done
for device in "$root"/sys/class/cxi/*; do
  printf '%s\t\n' "${device#"$root"}"
  for path in "$device"/device/net/*; do printf '%s\t\n' "${path#"$root"}"; done
done
for interface in "$root"/sys/class/net/*; do
  [ -d "$interface" ] || continue
  tell "$interface"/{type,operstate,speed}
  driver "$interface"/device/uevent
  [ ! -d "$interface"/bridge ] || printf '%s\t\n' "${interface#"$root"}/bridge"
  for path in "$interface"/brif/*; do printf '%s\t\n' "${path#"$root"}"; done
done
{
  read -r _ # what the columns are called
  while read -r name _; do printf '/proc/net/route\t%s\n' "$name"; done
} 2>/dev/null < "$root"/proc/net/route || :
"""

#: Drivers of adapters that support more than their link layer shows.
_KINDS = {"hfi1": Kind.OMNI_PATH, "efa": Kind.EFA}
#: Drivers that emulate an adapter over the machine's sockets.
_SOFT = ("rdma_rxe", "siw")
_SOFT_DEVICE = expression(r"(?:rxe|siw)[0-9_]")

#: Interfaces of container and VM tools, by name.
_PRIVATE = expression(
    r"(?:docker|virbr|cni|podman|lxcbr|lxdbr|veth|vmnet|vboxnet|flannel|cali|kube|dummy|nerdctl)[\w.-]*"
    r"|br-[0-9a-f]{12}"
)
_ACTIVE = "4: ACTIVE"
_COUNT = expression(r"[0-9]{1,12}")
_IPOIB = "32"  # ARPHRD_INFINIBAND


def probe_network(host: RealHost, *, root: str = "") -> Network:
    """The networks of this machine."""
    outcome = host.run(["bash", "-c", SCRIPT, "fabrics", root])
    if not outcome.ok:
        raise ToolError("the machine's networks cannot be read", context=outcome.stderr)
    return parse(outcome.stdout)


def parse(text: str) -> Network:
    """Parse the script's output; other lines, such as a site's notices, are ignored."""
    facts: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        path, tab, value = line.partition("\t")
        if tab:
            facts[path].append(value.strip())
    routed = frozenset(facts.get("/proc/net/route", ()))
    one = {path: values[0] for path, values in facts.items()}
    interfaces = _interfaces(one, routed)
    up = {interface.name: interface for interface in interfaces}
    return Network(ports=(*_infiniband(one), *_slingshot(one, up)), interfaces=interfaces)


def _below(facts: dict[str, str], folder: str) -> list[str]:
    """The names in a directory with facts."""
    names = (path.removeprefix(folder).split("/")[0] for path in facts if path.startswith(folder))
    return list(dict.fromkeys(names))


def _infiniband(facts: dict[str, str]) -> list[Port]:
    found = []
    for device in _below(facts, "/sys/class/infiniband/"):
        top = f"/sys/class/infiniband/{device}"
        driver = facts.get(f"{top}/device/uevent", "")
        if driver in _SOFT or _SOFT_DEVICE.match(device):
            continue
        for number in filter(_COUNT.fullmatch, _below(facts, f"{top}/ports/")):
            port = f"{top}/ports/{number}"
            state = facts.get(f"{port}/state", "")
            rate = re.match(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) Gb/sec", facts.get(f"{port}/rate", ""))
            found.append(
                Port(
                    kind=_kind(
                        driver, facts.get(f"{port}/link_layer", ""), facts.get(f"{top}/node_type", "")
                    ),
                    device=device,
                    number=int(number),
                    active=state == _ACTIVE,
                    state=state.partition(": ")[2] or state,
                    rate_gbps=float(rate[1]) if rate else None,
                )
            )
    return found


def _kind(driver: str, link_layer: str, node_type: str) -> Kind:
    if driver in _KINDS:
        return _KINDS[driver]
    if "RNIC" in node_type:
        return Kind.IWARP
    return Kind.ROCE if link_layer == "Ethernet" else Kind.INFINIBAND


def _slingshot(facts: dict[str, str], interfaces: dict[str, Interface]) -> list[Port]:
    """An adapter's state and speed are those of its network interface."""
    found = []
    for device in _below(facts, "/sys/class/cxi/"):
        names = tuple(_below(facts, f"/sys/class/cxi/{device}/device/net/"))
        own = [interfaces[name] for name in names if name in interfaces]
        speed = next((each.speed_mbps for each in own if each.speed_mbps), None)
        up = any(each.up for each in own)
        found.append(
            Port(
                kind=Kind.SLINGSHOT,
                device=device,
                active=up,
                state="up" if up else "down",
                rate_gbps=speed / 1000 if speed else None,
            )
        )
    return found


def _interfaces(facts: dict[str, str], routed: frozenset[str]) -> tuple[Interface, ...]:
    found = []
    for name in _below(facts, "/sys/class/net/"):
        top = f"/sys/class/net/{name}"
        speed = facts.get(f"{top}/speed", "")
        members = _below(facts, f"{top}/brif/")
        is_bridge = f"{top}/bridge" in facts
        physical = [member for member in members if f"/sys/class/net/{member}/device/uevent" in facts]
        if name == "lo":
            continue
        found.append(
            Interface(
                name=name,
                # Interfaces without a carrier (a tunnel, some drivers) are "unknown".
                up=facts.get(f"{top}/operstate", "") in ("up", "unknown"),
                routed=name in routed,
                speed_mbps=int(speed) if _COUNT.fullmatch(speed) else None,  # -1: not known
                ipoib=facts.get(f"{top}/type") == _IPOIB,
                private=_PRIVATE.fullmatch(name) is not None or (is_bridge and not physical),
            )
        )
    return tuple(found)
