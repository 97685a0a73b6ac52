"""The pieces of bash that bring the image to a node; `{…}` is for str.format, and bash's braces doubled.

A lock of the kernel's (flock) on one file for each image does all of it. Who uses the tree has it shared, as
long as its shell lives or anything that this started: nothing has to be found out about killed jobs. Who
unpacks or removes has it alone. The file goes with the tree: who got the lock looks whether it is there.
"""

from __future__ import annotations

import shlex

from bareboat import bash
from bareboat.model import Delivery, Start

_HEAD = """\
# The image: each node brings it once, as one file, to its own scratch, where all jobs of the user share it.
image_archive={archive}
image_name={name}
image_shared={shared}
BAREBOAT_TREES={folder} # what containers are made of lies in it; or in the former, where it cannot be brought
image_tree=$BAREBOAT_TREES/$image_name
image_lock=
unpacking=
image_inodes={inodes}
boot=$(cat /proc/sys/kernel/random/boot_id)
"""

#: A node's part starts ranks, and uses the tree as long as it lives.
_BY_NODE = """\
trap 'echo "$?" >> "$BAREBOAT_CONTROL/ends.$BAREBOAT_HOST"; {end_watch}drop_image' EXIT
bring_image
"""

#: A program starts the ranks, each in a part of its own, and the proof's before: the tree stays in between.
_BY_RANK = """\
use_image() {{ # which the part --bring has brought
  if {{ exec {{image_lock}}<"$image_tree.lock"; }} 2>/dev/null; then
    flock -s "$image_lock" && is_lock_of "$image_tree" "$image_lock" && image_is_whole && return
    exec {{image_lock}}<&-
    image_lock=
  fi
  case $(tail -n 1 "$BAREBOAT_CONTROL/deliveries.$BAREBOAT_HOST" 2>/dev/null) in
    *" shared "*) BAREBOAT_TREES=$image_shared ;;
    *) read_shared 'it is not there any more' ;;
  esac
}}

trap 'status=$?; echo "$status" >> "$BAREBOAT_CONTROL/ends.$BAREBOAT_HOST"; {end_watch}
  [ "$status" -lt 128 ] || drop_image' EXIT
case $part in
  --bring)
    bring_image
    exit ;;
  --leave)
    for ((attempt = 1; attempt <= tries; attempt++)); do # what is about to end has it still
      sweep_images
      [ -e "$image_tree.lock" ] || break
      sleep 0.3
    done
    exit 0 ;; # also where another job goes on with it: a node that fails ends the others' parts
esac
use_image
"""

#: For the first node's part.
ARGUMENT = """\
  --bring | --leave) part=$1 BAREBOAT_RUN=$3 BAREBOAT_CONTROL=$4 tries=${5:-1} ;;
"""

FIRST = """\
# The image: to every node, and away again.
leave_images() {{ # $1: how often to try; also because steps that are not cleared away keep others out
  local attempt
  [ -z "$left" ] || return
  left=1
  for ((attempt = 1; attempt <= $1; attempt++)); do
    everywhere --leave "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$1" 2> "$BAREBOAT_CONTROL/leaving.log" && return
    sleep 1
  done
}}
left=
trap 'leave_images 1{end_warning}' EXIT
everywhere --bring "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" &
await "$!" || finish 3
"""


LEAVE = """\
leave_images 10
"""


def for_node(delivery: Delivery, start: Start, *, watches: bool) -> str:
    """In the part of every node. `watches`: it has a process that looks for signals."""
    head = _HEAD.format(
        archive=shlex.quote(delivery.archive),
        name=delivery.name,
        shared=shlex.quote(delivery.shared),
        folder=shlex.quote(delivery.folder),
        inodes=delivery.inodes,
    )
    end = _BY_RANK if start is Start.PROGRAM else _BY_NODE
    return "\n".join(
        (
            head,
            bash.piece(__package__, "runtime/image"),
            end.format(end_watch='kill "$watch"; ' if watches else ""),
        )
    )


def for_first(*, warns: bool) -> str:
    """In the first node's part, before a program starts the ranks. `warns`: a process of it counts time."""
    return FIRST.format(end_warning='; kill "$warning" 2>/dev/null' if warns else "")
