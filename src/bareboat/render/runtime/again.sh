# shellcheck shell=bash disable=SC2034,SC2154
# The first node: put a job back into the queue that asks for it.
# Expects: $code, $BAREBOAT_CONTROL; again of the scheduler.

# 75 (EX_TEMPFAIL): the job has saved its state and wants to go on later.
if [ "$code" -eq 75 ]; then
  printf 'bareboat: the job requests a restart: requeueing it\n' >&2
  trap '' TERM INT HUP # which the scheduler may send to put it there; it is not the end of the run
  if again "$@" > "$BAREBOAT_CONTROL/again"; then
    tail -n 1 "$BAREBOAT_CONTROL/again" >> "$BAREBOAT_CONTROL/agains"
    exit "${AGAIN:-75}"
  fi
fi
