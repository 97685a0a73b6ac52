#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --requeue
#SBATCH --open-mode=append
# digits: 2 nodes x 2 ranks; engine bubblewrap, launcher horovod, scheduler slurm
# Written by Fairlead 0.1.0, plan sha256:d4b910f5262d.
# It needs bash and what is named under "What must be there", but no Fairlead.
set -u

# Every process of this run carries this mark in its environment, whatever session or container it moves
# to. This shell itself does not: it got the mark as an argument, and does not export it.
unset FAIRLEAD_RUN

FAIRLEAD_NODES=2
FAIRLEAD_JOB="${SLURM_JOB_ID:-$$}"
# The scheduler starts this script on the first node, which starts it with --node on every node.
# bash SCRIPT --node|--rank NODE RUN FOLDER MASTER PORT WHAT;  bash SCRIPT --signal NODE RUN NAME
# NODE is a number, or the name of the variable that holds it.
part=--first
case ${1:-} in
  --node | --rank)
    part=$1 what=$7 FAIRLEAD_NODE=$(($2)) FAIRLEAD_RUN=$3 FAIRLEAD_RUN_DIR=$4
    FAIRLEAD_MASTER=$5 FAIRLEAD_PORT=$6 ;;
  --signal) part=$1 FAIRLEAD_RUN=$3 ;;
  *)
    FAIRLEAD_RUN="${1:-digits-$FAIRLEAD_JOB}"
    FAIRLEAD_RUN_DIR=/home/ada/digits/fairlead-runs/digits-$FAIRLEAD_JOB ;;
esac
read -r FAIRLEAD_HOST < /proc/sys/kernel/hostname # what uname -n says, and no program to start
HERE=" on $FAIRLEAD_HOST"

run_pids() { # the run's processes on this node
  grep -lszxF "FAIRLEAD_RUN=$FAIRLEAD_RUN" /proc/[0-9]*/environ | tr -dc '0-9\n'
}

end_run() { # ask every process to end, wait up to 10 s, then make them
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
}

deliver() { # $1: a signal for the run's processes on this node
  local pid caught
  if [ "$1" = TERM ]; then end_run; return; fi
  for pid in $(run_pids); do # one that does not handle it would die of it
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
    (( (0x${caught:-0} >> ($(kill -l "$1") - 1)) & 1 )) && kill -s "$1" "$pid"
  done
}

if [ "$part" = --signal ]; then # from the first node
  deliver "$4"
  exit
fi

if [ "$part" != --first ]; then
trap 'echo "$?" >> "$FAIRLEAD_RUN_DIR/ends.$FAIRLEAD_HOST"' EXIT

stop() { # $1: exit code
  trap '' TERM INT HUP
  end_run
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP

need() { # $1: path, $2: what it is, $3: what to do
  [ -e "$1" ] && return
  printf 'fairlead: %s is not there%s: %s\n  try: %s\n' "$2" "$HERE" "$1" "$3" >&2
  exit 3
}

# What must be there.
need /scratch/ada/fairlead/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 'a layer of the image' 'fairlead capture --fresh'
need /opt/bwrap 'the engine bubblewrap' 'fairlead doctor'
need /home/ada/digits 'the working folder' 'mkdir -p /home/ada/digits'

# The network interface that leads to the first node: the only one with the longest route there, read from the
# kernel without a program. Where there are several, `ip` knows; without it the libraries look by themselves.
interface_by_routes() {
  local address device destination flags mask longest=-1
  [[ $FAIRLEAD_MASTER =~ ^([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)$ ]] || return
  set -- "${BASH_REMATCH[@]}" # the kernel writes the last byte first
  address=$(($5 << 24 | $4 << 16 | $3 << 8 | $2))
  while read -r device destination _ flags _ _ _ mask _; do
    [ "$flags" != Flags ] && (( (16#$flags & 0x201) == 1 )) || continue # up, and not a refusal
    (( (address & 16#$mask) == 16#$destination && 16#$mask >= longest )) || continue
    if (( 16#$mask > longest )); then
      longest=$((16#$mask)) FAIRLEAD_INTERFACE=$device
    elif [ "$device" != "$FAIRLEAD_INTERFACE" ]; then
      FAIRLEAD_INTERFACE=
    fi
  done 2>/dev/null < /proc/net/route
}

FAIRLEAD_INTERFACE=
interface_by_routes
if [ -z "$FAIRLEAD_INTERFACE" ] && command -v ip >/dev/null; then
  FAIRLEAD_INTERFACE=$(ip -o -4 address show to "$FAIRLEAD_MASTER" | awk '{ print $2; exit }')
  [ -n "$FAIRLEAD_INTERFACE" ] ||
    FAIRLEAD_INTERFACE=$(ip -o route get "$FAIRLEAD_MASTER" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
fi

let_save() { # $1: files by the beginning of their names, $2: how many lines they have when all have saved
  local deadline=$((SECONDS + 60)) # for those that were not told
  while [ "$SECONDS" -lt "$deadline" ]; do
    [ "$(cat "$FAIRLEAD_RUN_DIR/$1".* 2>/dev/null | wc -l)" -lt "$2" ] || return
    sleep 0.2
  done
}

# A rank's output is kept, and goes to the job's line by line, its number before. No program is started for
# those that say nothing. (Of its first line bash does not keep zero bytes.)
read_output() { # $1: in this file
  trap '' TERM INT HUP
  : > "$1"
  if IFS= read -r line; then
    exec sed -u -e "w $1" -e "s/^/[rank $RANK] /" /dev/fd/7 - 7<<< "$line"
  elif [ -n "$line" ]; then # no end of a line
    printf '%s' "$line" > "$1"
    printf '[rank %s] %s' "$RANK" "$line"
  fi
}

# One rank: it is told its names.
start_rank() { # $1: its number on this node
  trap - INT QUIT
  LOCAL_RANK=$1
  RANK=$((FAIRLEAD_NODE * 2 + LOCAL_RANK))
  WORLD_SIZE=4 LOCAL_WORLD_SIZE=2
  MASTER_ADDR=$FAIRLEAD_MASTER MASTER_PORT=$FAIRLEAD_PORT
  unset GLOO_SOCKET_IFNAME
  [ -z "$FAIRLEAD_INTERFACE" ] || GLOO_SOCKET_IFNAME=$FAIRLEAD_INTERFACE
  HOROVOD_RANK=$RANK HOROVOD_SIZE=$WORLD_SIZE
  HOROVOD_LOCAL_RANK=$LOCAL_RANK HOROVOD_LOCAL_SIZE=$LOCAL_WORLD_SIZE
  HOROVOD_CROSS_RANK=$FAIRLEAD_NODE HOROVOD_CROSS_SIZE=2
  HOROVOD_HOSTNAME=$FAIRLEAD_HOST
  HOROVOD_CONTROLLER=gloo HOROVOD_CPU_OPERATIONS=gloo
  HOROVOD_GLOO_RENDEZVOUS_ADDR=$FAIRLEAD_MASTER HOROVOD_GLOO_RENDEZVOUS_PORT=$FAIRLEAD_PORT
  unset HOROVOD_GLOO_IFACE
  [ -z "$FAIRLEAD_INTERFACE" ] || HOROVOD_GLOO_IFACE=$FAIRLEAD_INTERFACE
  local log=$FAIRLEAD_RUN_DIR/logs/$RANK code
  exec 3> >(read_output "$log.out")
  exec 4> >(exec >&2 3>&-; read_output "$log.err")
  rank_command >&3 2>&4 3>&- 4>&- 6>&-
  code=$?
  exec 3>&- 4>&- 6>&-
  echo "$RANK $code" >> "$FAIRLEAD_RUN_DIR/exits.$FAIRLEAD_NODE"
  [ "$code" -ne 75 ] || let_save exits 4
  [ "$code" -eq 0 ] || end_run # the others would wait for it for ever
  exit "$code"
}

rank_command() {
  passed=()
  for name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME "${!HOROVOD_@}"; do
    [ -n "${!name+set}" ] || continue
    value=${!name}
    passed+=(--setenv "$name" "$value")
  done
  /opt/bwrap \
  --bind /scratch/ada/fairlead/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa / \
  --dev-bind /dev /dev \
  --bind /proc /proc \
  --ro-bind /sys /sys \
  --tmpfs /tmp \
  --tmpfs /var/tmp \
  --tmpfs /run \
  --tmpfs /home/ada \
  --ro-bind-try /etc/resolv.conf /etc/resolv.conf \
  --ro-bind-try /etc/hosts /etc/hosts \
  --dir /home/ada \
  --bind /home/ada/digits /home/ada/digits \
  ${FAIRLEAD_METER_DIR:+--bind "$FAIRLEAD_METER_DIR" /run/fairlead/FAIRLEAD_METER_DIR} \
  ${FAIRLEAD_RUN_DIR:+--bind "$FAIRLEAD_RUN_DIR" /run/fairlead/FAIRLEAD_RUN_DIR} \
  --remount-ro / \
  --clearenv \
  --setenv FAIRLEAD_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
  --setenv HOME /home/ada \
  --setenv LANG C.UTF-8 \
  --setenv LOGNAME ada \
  --setenv OMP_NUM_THREADS 1 \
  --setenv PATH /env/bin:/usr/bin \
  --setenv PYTHONNOUSERSITE 1 \
  --setenv TZ Europe/Rome \
  --setenv USER ada \
  ${FAIRLEAD_RUN:+--setenv FAIRLEAD_RUN "$FAIRLEAD_RUN"} \
  ${FAIRLEAD_METER_DIR:+--setenv FAIRLEAD_METER_DIR /run/fairlead/FAIRLEAD_METER_DIR} \
  ${FAIRLEAD_GATE:+--setenv FAIRLEAD_GATE "$FAIRLEAD_GATE"} \
  ${FAIRLEAD_RUN_DIR:+--setenv FAIRLEAD_RUN_DIR /run/fairlead/FAIRLEAD_RUN_DIR} \
  ${passed[@]+"${passed[@]}"} \
  --chdir /home/ada/digits \
  --die-with-parent \
  -- \
  /env/bin/python -c '"""Where the ranks of Horovod over Gloo meet, without MPI and without ssh. A program: one file without
dependencies, for the Python 3.7 or newer of any image.

    python rendezvous.py COMMAND…      with HOROVOD_RANK and HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT set

Rank 0 starts a small key-value store beside itself, which speaks what `horovodrun` speaks
(horovod/runner/http/http_server.py); every rank waits until it is there and then becomes the command. The
store ends by itself, a little after rank 0.
"""

import contextlib
import http.server
import os
import socket
import sys
import threading
import time

#: Seconds until rank 0 is there; its container may first have to be unpacked.
_PATIENCE_S = 300.0
#: After rank 0'"'"'s end other ranks still take leave of the store.
_QUIET_S = 3.0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(command: "list[str]") -> int:
    address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    if os.environ["HOROVOD_RANK"] == "0":
        try:
            store = _Store((address, port), _Request)
        except OSError as error:
            sys.stderr.write(f"fairlead: rank 0 cannot listen on {address}:{port}: {error}\n")
            return 3
        _detach(store)
    elif not _is_there(address, port):
        sys.stderr.write(f"fairlead: rank 0 ({address}:{port}) does not answer\n")
        return 3
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"fairlead: {command[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _is_there(address: str, port: int) -> bool:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=5).close()
            return True
        time.sleep(0.1)
    return False


class _Store(http.server.ThreadingHTTPServer):
    """Scope and key -> value. What ranks delete at their end may stay: the store ends soon after."""

    daemon_threads = True

    def __init__(self, *arguments: "Any") -> None:
        super().__init__(*arguments)
        self.values: dict[str, bytes] = {}
        self.asked_at = time.monotonic()


class _Request(http.server.BaseHTTPRequestHandler):
    server: "_Store"
    timeout = 10

    def do_GET(self) -> None:
        self._answer(self.server.values.get(self.path))

    def do_PUT(self) -> None:
        self.server.values[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def do_DELETE(self) -> None:
        self._answer(b"")

    def _answer(self, value: "bytes | None") -> None:
        self.server.asked_at = time.monotonic()
        self.send_response(404 if value is None else 200)
        self.send_header("Content-Length", str(len(value or b"")))
        self.end_headers()
        self.wfile.write(value or b"")

    def log_message(self, *words: "Any") -> None:
        pass


def _detach(store: _Store) -> None:
    """Go on in a process that is no child of the command, which may wait for all of its children."""
    rank = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        store.socket.close()
        return
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # nobody who reads the rank'"'"'s output waits for us
        os.dup2(nothing, stream)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    while os.path.exists(f"/proc/{rank}") or time.monotonic() - store.asked_at < _QUIET_S:
        time.sleep(0.25)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
' python digits.py --epochs 40
}

[ -e /dev/fd/0 ] || exec </dev/null
children=()
# A pipe that nobody writes to: its end says that all who read the ranks' output have come to theirs.
exec 5< <(:)
exec 6> /proc/self/fd/5
for ((number = 0; number < 2; number++)); do
  if [ "$((FAIRLEAD_NODE + number))" -eq 0 ]; then
    start_rank 0 <&0 5<&- &
  else
    start_rank "$number" </dev/null 5<&- &
  fi
  children+=("$!")
done
exec 6>&-
code=0
for child in "${children[@]}"; do
  wait "$child" || { status=$?; [ "$code" -ne 0 ] || code=$status; }
done
# The last lines; whoever holds a rank's output after its end is not waited for.
read -r -t 1 -u 5
exec 5<&-

echo "$code" >> "$FAIRLEAD_RUN_DIR/over.$FAIRLEAD_NODE"
[ "$code" -eq 0 ] || ! grep -qs ' 75$' "$FAIRLEAD_RUN_DIR/exits.$FAIRLEAD_NODE" ||
  let_save over "$FAIRLEAD_NODES"

[ "$code" -eq 0 ] || end_run
exit "$code"

fi

# From here on: the first node.
[ -d "$FAIRLEAD_RUN_DIR" ] || mkdir -p "$FAIRLEAD_RUN_DIR" || exit 3
printf '%(%s)T %s %s\n' -1 "$FAIRLEAD_HOST" "$FAIRLEAD_JOB" >> "$FAIRLEAD_RUN_DIR/starts"
mapfile -t begun < "$FAIRLEAD_RUN_DIR/starts"
starts=${#begun[@]}
if [ "$starts" -gt 1 ]; then
  rm -f "$FAIRLEAD_RUN_DIR"/{exits,ends,over}.* "$FAIRLEAD_RUN_DIR"/{exit_code,signals}
  [ ! -d "$FAIRLEAD_RUN_DIR/logs" ] || mv "$FAIRLEAD_RUN_DIR/logs" "$FAIRLEAD_RUN_DIR/logs.$((starts - 1))"
fi
script=$FAIRLEAD_RUN_DIR/job.sh
[ -e "$script" ] || cp "$0" "$script" || exit 3

finish() { # $1: exit code; kept in a file, because schedulers forget
  printf '%s %(%s)T\n' "$1" -1 > "$FAIRLEAD_RUN_DIR/exit_code" # who reads it before the line is there waits
  exit "$1"
}

everywhere() { # run this script on every node, with these arguments after the node's number
  local how=$1
  shift
  if [ "$FAIRLEAD_NODES" -eq 1 ]; then
    bash "$script" "$how" 0 "$@"
  else
    on_each_node "$script" "$how" "$@"
  fi
}

pass_on() { # a signal of the scheduler's, for the ranks on all nodes
  everywhere --signal "$FAIRLEAD_RUN" "$1"
}

stop() { # $1: exit code
  trap '' TERM INT HUP USR1
  pass_on TERM
  finish "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP
# Before the end of the job's time, or its preemption: time to write a checkpoint.
trap 'interrupted=1; pass_on USR1' USR1

await() { # the exit code of a child, through any number of signals
  local status
  while :; do
    interrupted=
    wait "$1"
    status=$?
    [ -n "$interrupted" ] || return "$status"
  done
}

[ -d "$FAIRLEAD_RUN_DIR/logs" ] || mkdir "$FAIRLEAD_RUN_DIR/logs" || exit 3

# Of "c[01-03,07],x9" what scontrol makes, which reads the site's configuration before; it is asked for many
# nodes, and for names of another form.
hosts() {
  local rest=$SLURM_JOB_NODELIST prefix range first number found=()
  while [ "$FAIRLEAD_NODES" -le 64 ] && [[ $rest =~ ^([^][,]+)(\[([0-9,-]+)\])?(,|$) ]]; do
    rest=${rest:${#BASH_REMATCH[0]}} prefix=${BASH_REMATCH[1]}
    [ -n "${BASH_REMATCH[2]}" ] || found+=("$prefix")
    for range in ${BASH_REMATCH[3]//,/ }; do
      first=${range%-*}
      for ((number = 10#$first; number <= 10#${range#*-}; number++)); do
        printf -v "found[${#found[@]}]" '%s%0*d' "$prefix" "${#first}" "$number"
      done
    done
  done
  if [ -z "$rest" ]; then printf '%s\n' "${found[@]}"; else scontrol show hostnames "$SLURM_JOB_NODELIST"; fi
}

on_each_node() {
  local script=$1 how=$2
  shift 2
  srun --nodes="$FAIRLEAD_NODES" --ntasks="$FAIRLEAD_NODES" --ntasks-per-node=1 --kill-on-bad-exit=1 \
    --overlap --mpi=none bash "$script" "$how" SLURM_NODEID "$@"
}

again() { scontrol requeue "$SLURM_JOB_ID" && echo "$SLURM_JOB_ID"; }

agains=()
[ ! -e "$FAIRLEAD_RUN_DIR/agains" ] || mapfile -t agains < "$FAIRLEAD_RUN_DIR/agains"
if [ "$((starts - ${#agains[@]}))" -gt 2 ]; then
  printf 'fairlead: this job lost its nodes twice; it is not started a third time\n' >&2
  finish 70
fi

mapfile -t hosts < <(hosts)
if [ "${#hosts[@]}" -ne "$FAIRLEAD_NODES" ]; then
  printf 'fairlead: the job is for %s nodes, and has: %s\n' "$FAIRLEAD_NODES" "${hosts[*]}" >&2
  finish 3
fi
printf '%s\n' "${hosts[@]}" > "$FAIRLEAD_RUN_DIR/hosts"
# Ranks meet at the first node, by its address: names may not resolve in an image.
FAIRLEAD_MASTER=${hosts[0]}
while read -r address _; do
  [[ $address == 127.* ]] || { FAIRLEAD_MASTER=$address; break; }
done < <(getent ahostsv4 "${hosts[0]}")

# A port that nobody listens on here; jobs begin to look at different ones. (To read the kernel's table of
# sockets takes 15 ms.)
FAIRLEAD_PORT=$((20000 + ${FAIRLEAD_JOB//[!0-9]/}0 / 10 % 20000))
while { true < "/dev/tcp/127.0.0.1/$FAIRLEAD_PORT" || true < "/dev/tcp/$FAIRLEAD_MASTER/$FAIRLEAD_PORT"; } \
  2> /dev/null; do
  FAIRLEAD_PORT=$((FAIRLEAD_PORT + 1))
done

run() { # $1: job or proof
  everywhere --node "$FAIRLEAD_RUN" "$FAIRLEAD_RUN_DIR" "$FAIRLEAD_MASTER" "$FAIRLEAD_PORT" "$1" &
  await "$!"
}

run job
code=$?

# The first rank that failed by itself says what went wrong; its exit code is ours.
if [ "$code" -ne 0 ]; then
  failed=$(cat "$FAIRLEAD_RUN_DIR"/exits.* 2>/dev/null | grep -v ' 0$')
  first=$(grep -vE ' (129|130|137|143)$' <<< "$failed" | head -n 1)
  read -r rank status <<< "${first:-$(head -n 1 <<< "$failed")}"
  if [ -n "${status:-}" ]; then
    printf 'fairlead: rank %s ended first, with exit code %s; its last output:\n' "$rank" "$status" >&2
    cat "$FAIRLEAD_RUN_DIR/logs/$rank".{out,err} 2>/dev/null | tail -n 20 | sed 's/^/  /' >&2
    code=$status
  fi
fi

# 75 (EX_TEMPFAIL): the job has saved its state and wants to go on later.
if [ "$code" -eq 75 ]; then
  printf 'fairlead: the job asks to go on later: back into the queue\n' >&2
  trap '' TERM INT HUP # which the scheduler may send to put it there; it is not the end of the run
  if again > "$FAIRLEAD_RUN_DIR/again"; then
    tail -n 1 "$FAIRLEAD_RUN_DIR/again" >> "$FAIRLEAD_RUN_DIR/agains"
    exit "${AGAIN:-75}"
  fi
fi

finish "$code"
