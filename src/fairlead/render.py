"""Plan -> plain bash, and text for people. The only room that quotes; pure.

The script runs by hand, with no Fairlead anywhere, and is meant to be read by an administrator.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

import msgspec

from fairlead import __version__, codec
from fairlead.model import Command, Joined, Plan, Variable, WhenSet, Word

_HEAD = """\
#!/usr/bin/env bash
# {title}
# Written by Fairlead {version}, plan {digest}.
# It needs bash and what is named under "What must be there", but no Fairlead.
set -u

# Every process of this run carries this mark in its environment, whatever session or container it moves
# to. This shell itself does not: it got the mark as an argument, and does not export it.
unset FAIRLEAD_RUN
FAIRLEAD_RUN="${{1:-{name}-$$}}"

run_pids() {{ # the run's processes
  grep -lszxF "FAIRLEAD_RUN=$FAIRLEAD_RUN" /proc/[0-9]*/environ | tr -dc '0-9\\n'
}}

end_run() {{ # ask every process to end, wait up to 10 s, then make them
  local signal pids deadline
  for signal in TERM KILL; do
    pids=$(run_pids)
    [ -n "$pids" ] || return
    # shellcheck disable=SC2086
    kill -s "$signal" $pids 2>/dev/null
    deadline=$((SECONDS + 10))
    while [ "$SECONDS" -lt "$deadline" ]; do
      [ -n "$(run_pids)" ] || return
      sleep 0.1
    done
  done
}}

stop() {{ # $1: exit code
  trap '' TERM INT HUP
  end_run
  exit "$1"
}}
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP

need() {{ # $1: path, $2: what it is, $3: what to do
  [ -e "$1" ] || {{ printf 'fairlead: %s is not there: %s\\n  try: %s\\n' "$2" "$1" "$3" >&2; exit 3; }}
}}
"""

_RUN_FOLDER = """\
# Where the ranks leave their exit codes and output.
if [ -z "${FAIRLEAD_RUN_DIR:-}" ]; then
  FAIRLEAD_RUN_DIR=$(mktemp -d "${TMPDIR:-/tmp}/fairlead-run.XXXXXX") || exit 3
  trap 'rm -rf "$FAIRLEAD_RUN_DIR"' EXIT
fi
"""

_JOB = """\
# The job: in the background, because bash runs a trap only between commands or during `wait`. It keeps the
# standard input, and the signals that bash takes from what it puts there.
[ -e /dev/fd/0 ] || exec </dev/null
(
  trap - INT QUIT
  exec {command}
) <&0 &
child=$!
wait "$child"
code=$?
"""

_FIRST_FAILURE = """\
# The first rank that failed says what went wrong; its exit code is ours.
if [ "$code" -ne 0 ] && [ -r "$FAIRLEAD_RUN_DIR/exits" ]; then
  while read -r rank status; do
    [ "$status" -ne 0 ] || continue
    printf 'fairlead: rank %s ended first, with exit code %s; its last output:\\n' "$rank" "$status" >&2
    cat "$FAIRLEAD_RUN_DIR"/{rank_log}/std{{out,err}}.log 2>/dev/null | tail -n 20 | sed 's/^/  /' >&2
    code=$status
    break
  done < "$FAIRLEAD_RUN_DIR/exits"
fi
"""

_END = """\
[ "$code" -eq 0 ] || end_run
exit "$code"
"""


def script(plan: Plan) -> str:
    """The job script of a plan."""
    topology = plan.job.topology
    title = (
        f"{plan.job.name}: {topology.nodes} node x {topology.ranks_per_node} ranks; "
        f"engine {plan.engine}, launcher {plan.launcher}, scheduler {plan.scheduler}"
    )
    parts = [
        _HEAD.format(
            title=_one_line(title),
            version=__version__,
            digest=digest(plan)[:19],
            name="".join(c if c.isalnum() or c in "._-" else "-" for c in plan.job.name),
        ),
        "# What must be there.",
        *(
            f"need {shlex.quote(r.path)} {shlex.quote(r.what)} {shlex.quote(r.remedy)}"
            for r in plan.requirements
        ),
        "",
    ]
    if plan.rank_log is not None:
        parts.append(_RUN_FOLDER)
    parts.append(_JOB.format(command=_command(plan.command)))
    if plan.rank_log is not None:
        parts.append(_FIRST_FAILURE.format(rank_log=plan.rank_log.replace("$rank", '"$rank"')))
    parts.append(_END)
    return "\n".join(parts)


def digest(plan: Plan) -> str:
    """The digest of what will be done. Warnings tell of the moment (the load, say) and do not count."""
    return codec.digest(msgspec.structs.replace(plan, warnings=()))


def text(plan: Plan) -> str:
    """The decisions with their reasons and the rejected alternatives, for a terminal."""
    lines = [f"{plan.job.name}: {' '.join(shlex.quote(word) for word in plan.job.command)}", ""]
    width = max(len(decision.subject) for decision in plan.decisions)
    for decision in plan.decisions:
        lines.append(f"  {decision.subject:<{width}}  {decision.choice}")
        lines.append(f"  {'':<{width}}    because {decision.reason}")
        for other in decision.rejected:
            remedy = f"  ({other.remedy})" if other.remedy else ""
            lines.append(f"  {'':<{width}}    not {other.choice}: {other.reason}{remedy}")
    lines += [f"  warning: {warning}" for warning in plan.warnings]
    lines += ["", f"plan {digest(plan)}"]
    return "\n".join(lines)


def _command(command: Command) -> str:
    """The command over several lines, one option a line."""
    lines: list[str] = []
    in_options = True
    for word in command.argv:
        quoted = _quoted(word)
        starts_line = in_options and (quoted.startswith(("-", "${")) or "=" in quoted)
        if not lines or starts_line:
            lines.append(quoted)
        else:
            lines[-1] += " " + quoted
        if word == "--":
            in_options = False
            lines.append("")
    return " \\\n  ".join(line.strip() for line in lines if line.strip())


def _quoted(word: Word) -> str:
    match word:
        case str():
            return shlex.quote(word)
        case Variable(name=name):
            return f'"${name}"'
        case Joined(parts=parts):
            return "".join(_quoted(part) for part in parts)
        case WhenSet(variable=variable, words=words):
            inner = " ".join(_quoted(part) for part in words)
            return f"${{{variable}:+{inner}}}"


def _one_line(text: str) -> str:
    return "".join(_visible(text))


def _visible(text: Iterable[str]) -> Iterator[str]:
    """A job's name may hold anything; in a comment a newline would end the comment."""
    for character in text:
        yield character if character.isprintable() else "?"
