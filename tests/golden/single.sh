#!/usr/bin/env bash
# digits: 1 node x 1 ranks; engine bubblewrap, launcher single, scheduler local
# Written by Fairlead 0.1.0, plan sha256:964671a7253b.
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
need /scratch/ada/fairlead/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 'a layer of the image' 'fairlead capture --fresh'
need /opt/bwrap 'the engine bubblewrap' 'fairlead doctor'
need /home/ada/digits 'the working folder' 'mkdir -p /home/ada/digits'

[ -e /dev/fd/0 ] || exec </dev/null
# The job: in the background, because bash runs a trap only between commands or during `wait`. It
# keeps the standard input, and the signals that bash takes from what it puts there.
(
  trap - INT QUIT
  exec /opt/bwrap \
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
  --ro-bind '/scratch/ada/fairlead/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/home/ada/my digits/.venv' '/home/ada/my digits/.venv' \
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
  --chdir /home/ada/digits \
  --die-with-parent \
  -- \
  bash -c 'exit 3'
) <&0 &
child=$!
wait "$child"
code=$?

[ "$code" -eq 0 ] || end_run
exit "$code"
