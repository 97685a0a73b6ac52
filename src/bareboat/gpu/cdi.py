"""Container Device Interface: files in which a vendor's tool lists what a container needs for its GPUs.

Source: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bareboat_base.files.root import Root

#: Later ones take precedence, as in the specification.
FOLDERS = ("/etc/cdi", "/var/run/cdi")


class Edits(Struct, frozen=True):
    """The edits of a file's device "all". `mounts`: pairs of the host's path and the container's."""

    path: str
    kind: str
    devices: tuple[str, ...]
    mounts: tuple[tuple[str, str], ...]
    environment: dict[str, str]


def read(tree: Root, kind: str) -> tuple[Edits | None, tuple[str, ...]]:
    """The edits for devices of this kind, such as nvidia.com/gpu; and notes on parts that cannot be
    parsed."""
    found, notes = None, []
    for folder in FOLDERS:
        for name in tree.names(folder):
            if not name.endswith((".json", ".yaml", ".yml")):
                continue
            path = f"{folder}/{name}"
            try:
                document = _parse(tree.text(path), name)
                if document.get("kind") == kind:
                    found = _edits(path, document)
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                notes.append(f"{path} cannot be parsed: {error}")
    return found, tuple(notes)


def _parse(text: str, name: str) -> dict[str, Any]:
    if name.endswith(".json"):
        import json

        document = json.loads(text)
    else:
        import yaml  # 15 ms, and few machines have such a file

        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    if not isinstance(document, dict):
        raise ValueError("it is not an object")
    return document


def _edits(path: str, document: dict[str, Any]) -> Edits:
    devices = document.get("devices") or []
    # "all" names every device; where a tool did not write it, all devices are used.
    chosen = [each for each in devices if each.get("name") == "all"] or devices
    edits = [document.get("containerEdits") or {}, *(each.get("containerEdits") or {} for each in chosen)]
    environment = [str(word).partition("=") for each in edits for word in each.get("env") or []]
    return Edits(
        path=path,
        kind=str(document["kind"]),
        devices=_once(str(node["path"]) for each in edits for node in each.get("deviceNodes") or []),
        mounts=tuple(
            dict.fromkeys(
                (str(mount["hostPath"]), str(mount["containerPath"]))
                for each in edits
                for mount in each.get("mounts") or []
            )
        ),
        environment={name: value for name, _, value in environment},
    )


def _once(paths: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
