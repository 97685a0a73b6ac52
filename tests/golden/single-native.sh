#!/usr/bin/env bash
# digits: 1 node x 1 ranks; engine native, launcher single, scheduler local
# Written by Fairlead 0.1.0, plan sha256:ee4e1d815c92.
# It needs bash and what is named under "What must be there", but no Fairlead.
set -u

# Every process of this run carries this mark in its environment, whatever session or container it moves
# to. This shell itself does not: it got the mark as an argument, and does not export it.
unset FAIRLEAD_RUN

FAIRLEAD_RUN="${1:-digits-$$}"
HERE=

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
need /home/ada/digits 'the working folder' 'mkdir -p /home/ada/digits'

[ -e /dev/fd/0 ] || exec </dev/null
# The job: in the background, because bash runs a trap only between commands or during `wait`. It
# keeps the standard input, and the signals that bash takes from what it puts there.
(
  trap - INT QUIT
  exec env \
  -i \
  --chdir=/home/ada/digits \
  HOME=/home/ada \
  LANG=C.UTF-8 \
  LOGNAME=ada \
  OMP_NUM_THREADS=1 \
  PATH=/env/bin:/usr/bin \
  PYTHONNOUSERSITE=1 \
  TZ=Europe/Rome \
  USER=ada \
  ${FAIRLEAD_RUN:+FAIRLEAD_RUN="$FAIRLEAD_RUN"} \
  ${FAIRLEAD_METER_DIR:+FAIRLEAD_METER_DIR="$FAIRLEAD_METER_DIR"} \
  ${FAIRLEAD_GATE:+FAIRLEAD_GATE="$FAIRLEAD_GATE"} \
  ${FAIRLEAD_RUN_DIR:+FAIRLEAD_RUN_DIR="$FAIRLEAD_RUN_DIR"} python digits.py \
  --epochs 40
) <&0 &
child=$!
wait "$child"
code=$?

[ "$code" -eq 0 ] || end_run
exit "$code"
