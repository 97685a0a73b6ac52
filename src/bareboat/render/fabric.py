"""The pieces of a job script that look after the way between nodes: which one the ranks took, as their
libraries say, and what becomes of ranks that fell back to sockets."""

from __future__ import annotations

import shlex

from msgspec import UNSET

from bareboat.fabric import told
from bareboat.fabric.facts import FabricWatch
from bareboat.model import Plan

_WAY = """\
# The way that the ranks take to other nodes, by what their libraries say of themselves.
by_sockets={sockets}
by_fabric={fabric}
saying() {{ # $1: a pattern, $2…: files and folders; the files that have it. Containers may write them: no
  # link is followed, and nothing is read that is no file, or larger than such words are.
  find "${{@:2}}" -maxdepth 1 -type f -size -65536k -exec grep -laE -- "$1" {{}} + 2>/dev/null
}}

fabric_way() {{ # $@: files and folders with their words
  if saying "$by_sockets" "$@" | grep -q .; then
    echo sockets
  elif saying "$by_fabric" "$@" | grep -q .; then
    echo fabric
  fi
}}
"""

_MARK = """\
fallen() {{
  : > "$BAREBOAT_CONTROL/no_fabric"
  printf 'bareboat: WARNING: the ranks speak by sockets although the nodes have %s\\n' {there} >&2
}}
"""

_REQUIRE = """\
fallen() {{ # $1: what they do
  : > "$BAREBOAT_CONTROL/no_fabric"
  printf 'bareboat: the ranks %s, and the job asks for a fabric; the nodes have %s\\n' "$1" {there} >&2
  printf '  try: bareboat plan JOB   # what keeps them from it; or fabric = "mark"\\n' >&2
}}
"""

_PROOF_MARK = """\
[ "$(fabric_way "$BAREBOAT_CONTROL/proof.log")" != sockets ] || fallen
"""

_PROOF_REQUIRE = """\
case $(fabric_way "$BAREBOAT_CONTROL/proof.log") in
  fabric) ;;
  sockets) fallen 'speak by sockets'; finish 3 ;;
  *) fallen 'do not say which way they take'; finish 3 ;;
esac
"""

_WATCH = """\
( # They say it when they begin, or later; this look every two seconds ends when all have, or with the job.
  while sleep 2 > /dev/null 2>&1; do
    kill -0 "$$" 2>/dev/null || exit
    case $(fabric_way {places}) in
      sockets)
        {what}
        exit ;;
      fabric)
        [ "$(saying "$by_fabric" {places} | wc -l)" -lt {tellers} ] || exit ;;
    esac
  done
) < /dev/null &
fabric_watch=$!
"""

#: A short job may be over before the watcher's next look.
_END_MARKED = """\
kill "$fabric_watch" 2>/dev/null
[ -e "$BAREBOAT_CONTROL/no_fabric" ] || [ "$(fabric_way {places})" != sockets ] || fallen
"""

_END_REQUIRED = """\
kill "$fabric_watch" 2>/dev/null
[ "$code" -ne 0 ] || [ "$(fabric_way {places})" != sockets ] || fallen 'spoke by sockets'
[ ! -e "$BAREBOAT_CONTROL/no_fabric" ] || finish 3
"""


def before(plan: Plan) -> list[str]:
    """What comes before the job is run, on the first node."""
    watch = plan.fabric
    if watch is UNSET:
        return []
    found = []
    if watch.nccl or watch.there:
        found.append('rm -f "$BAREBOAT_CONTROL/no_fabric" # of an earlier start\n')
    if not watch.there or not (watch.proof or watch.nccl):
        return found
    sockets, fabric = shlex.quote(told.SOCKETS), shlex.quote(told.FABRIC)
    found.append(_WAY.format(sockets=sockets, fabric=fabric))
    found.append((_REQUIRE if watch.required else _MARK).format(there=shlex.quote(watch.there)))
    if watch.proof and watch.program and plan.proof is not None:
        found.append(_PROOF_REQUIRE if watch.required else _PROOF_MARK)
    if places := _watched(watch):
        what = "fallen"
        if watch.required:
            what = "fallen 'speak by sockets'; pass_on TERM"
        # In the proof one log tells for all; of NCCL each process has a file.
        tellers = plan.job.topology.world_size if watch.nccl else 1
        found.append(_WATCH.format(places=places, what=what, tellers=tellers))
    return found


def after(plan: Plan) -> list[str]:
    """What comes when the job is over."""
    watch = plan.fabric
    if watch is UNSET or not watch.there or not _watched(watch):
        return []
    return [(_END_REQUIRED if watch.required else _END_MARKED).format(places=_watched(watch))]


def _watched(watch: FabricWatch) -> str:
    """What a watcher reads; "" when the proof, which the script runs itself, says all."""
    found = []
    if watch.proof and not watch.program:  # the image's own mpirun proves its ranks by itself
        found.append('"$BAREBOAT_RUN_DIR/proof.log"')
    if watch.nccl:
        found.append(f'"$BAREBOAT_RUN_DIR/{told.NCCL_FOLDER}"')
    return " ".join(found)
