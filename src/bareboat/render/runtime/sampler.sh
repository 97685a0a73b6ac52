# shellcheck shell=bash disable=SC2034,SC2154
# Record what the run's processes on this node use, where Bareboat's sampler and a Python are there.
# Expects: $BAREBOAT_RUN, $BAREBOAT_CONTROL, $BAREBOAT_HOST; at_exit.sh, processes.sh.

start_sampler() {
  local program=$BAREBOAT_CONTROL/sampler.py python place=$BAREBOAT_CONTROL/usage/$BAREBOAT_HOST
  [ -e "$program" ] || program=${BAREBOAT_CONTROL%/points/*}/sampler.py # of all points of a sweep or a study
  [ -e "$program" ] && python=$(command -v python3) || return 1
  (umask 077 && mkdir -p "${place%/*}" && mkdir "$place") 2> /dev/null || return 0 # another rank's part has begun
  "$python" -I -S "$program" "$BAREBOAT_RUN" "$$" "$place" < /dev/null > /dev/null 2>&1 &
  at_exit "kill $! 2> /dev/null"
}
