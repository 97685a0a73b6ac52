# shellcheck shell=bash disable=SC2034,SC2154
# SIGUSR1 before the end of the job's time, if the scheduler does not send it.
# Expects: $warning_after_s; at_exit.sh.

(
  trap 'kill "$!"; exit' TERM
  sleep "$warning_after_s" > /dev/null 2>&1 &
  wait "$!" && kill -s USR1 "$$"
) &
warning=$!
at_exit "kill $warning 2> /dev/null"
