#!/usr/bin/env bash
# digits, 2 ranks: 1 node x 2 ranks; engine native, launcher torchrun, scheduler local
# Written by Fairlead 0.1.0, plan sha256:e0d9092121c2.
# It needs bash and what is named under "What must be there", but no Fairlead.
set -u

# Every process of this run carries this mark in its environment, whatever session or container it moves
# to. This shell itself does not: it got the mark as an argument, and does not export it.
unset FAIRLEAD_RUN

FAIRLEAD_RUN="${1:-digits--2-ranks-$$}"
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
need '/home/ada/my digits' 'the working folder' 'mkdir -p '"'"'/home/ada/my digits'"'"''

# Where the ranks leave their exit codes and output.
if [ -z "${FAIRLEAD_RUN_DIR:-}" ]; then
  FAIRLEAD_RUN_DIR=$(mktemp -d "${TMPDIR:-/tmp}/fairlead-run.XXXXXX") || exit 3
  trap 'rm -rf "$FAIRLEAD_RUN_DIR"' EXIT
fi

[ -d "$FAIRLEAD_RUN_DIR/logs" ] || mkdir "$FAIRLEAD_RUN_DIR/logs" || exit 3

FAIRLEAD_NODE=0

[ -e /dev/fd/0 ] || exec </dev/null
# Each rank's output goes to files, and from there to the job's line by line, its number before: what is new
# every 0.2 s, and what is left when the ranks are over. (Of a line with zero bytes only the file has all.)
follow_output() {
  trap '' TERM INT HUP
  local k lines last over='' rests=()
  while [ -z "$over" ]; do
    read -r -t 0.2 -u 5 || [ "$?" -gt 128 ] || over=1
    for k in "${!logs[@]}"; do
      while mapfile -n 1000 -u "${logs[k]}" lines && [ "${#lines[@]}" -gt 0 ]; do
        lines[0]=${rests[k]:-}${lines[0]} last=$((${#lines[@]} - 1)) rests[k]=
        # The last line may not be whole yet.
        [[ ${lines[last]} == *$'\n' ]] || { rests[k]=${lines[last]}; unset "lines[last]"; }
        [ "${#lines[@]}" -eq 0 ] || tell "$k" "${lines[@]}"
      done
    done
  done
  for k in "${!logs[@]}"; do [ -z "${rests[k]:-}" ] || tell "$k" "${rests[k]}"; done
}

tell() { # $1: of which file, $2…: lines
  local rank=$((FAIRLEAD_NODE * 2 + $1 / 2)) to=$(($1 % 2 + 1))
  printf "[rank $rank] %s" "${@:2}" >&"$to"
}

logs=()
for ((number = 0; number < 2; number++)); do
  for log in "$FAIRLEAD_RUN_DIR/logs/$((FAIRLEAD_NODE * 2 + number))".{out,err}; do
    : > "$log" || exit 3
    exec {opened}< "$log"
    logs+=("$opened")
  done
done
# A pipe that nobody writes to: its end says that the ranks are over.
exec 5< <(:)
exec 6> /proc/self/fd/5
follow_output 6>&- &
follower=$!
for opened in 5 "${logs[@]}"; do exec {opened}<&-; done
# The job: in the background, because bash runs a trap only between commands or during `wait`. It
# keeps the standard input, and the signals that bash takes from what it puts there.
(
  trap - INT QUIT
  exec env \
  -i \
  '--chdir=/home/ada/my digits' \
  GLOO_SOCKET_IFNAME=lo \
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
  ${FAIRLEAD_RUN_DIR:+FAIRLEAD_RUN_DIR="$FAIRLEAD_RUN_DIR"} /env/bin/python \
  -m torch.distributed.run \
  --standalone \
  --local-addr=127.0.0.1 \
  --nproc-per-node=2 \
  --max-restarts=0 \
  --log-dir="$FAIRLEAD_RUN_DIR"/torchrun/0 \
  --no-python /bin/sh \
  -c \
  'log=$FAIRLEAD_RUN_DIR/logs/$RANK; "$@" >> "$log.out" 2>> "$log.err"; code=$?; echo "$RANK $code" >> "$FAIRLEAD_RUN_DIR/exits.$GROUP_RANK"; exit "$code"' rank python digits.py \
  --note 'it'"'"'s $5' ''
) <&0 6>&- &
child=$!
wait "$child"
code=$?
exec 6>&-
wait "$follower"

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

[ "$code" -eq 0 ] || end_run
exit "$code"
