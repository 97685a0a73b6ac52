# shellcheck shell=bash disable=SC2034,SC2154
# The first node: requeue a job that requests it.
# Expects: $code, $BAREBOAT_CONTROL; again of the scheduler.

# 75 (EX_TEMPFAIL): the job has saved its state and continues later.
if [ "$code" -eq 75 ]; then
  printf 'bareboat: the job requests a restart: requeueing it\n' >&2
  trap '' TERM INT HUP # the scheduler may send them to requeue it; they do not end the run
  if again "$@" > "$BAREBOAT_CONTROL/again"; then
    tail -n 1 "$BAREBOAT_CONTROL/again" >> "$BAREBOAT_CONTROL/agains"
    exit "${AGAIN:-75}"
  fi
fi
