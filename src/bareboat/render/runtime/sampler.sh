# shellcheck shell=bash disable=SC2034,SC2154
# Record the resource usage of the run's processes on this node, if Bareboat's sampler and Python exist.
# Expects: $BAREBOAT_RUN, $BAREBOAT_CONTROL, $BAREBOAT_HOST; at_exit.sh, processes.sh.

start_sampler() {
  local program=$BAREBOAT_CONTROL/sampler.py python place=$BAREBOAT_CONTROL/usage/$BAREBOAT_HOST
  [ -e "$program" ] || program=${BAREBOAT_CONTROL%/points/*}/sampler.py # of all points of a sweep or a study
  [ -e "$program" ] && python=$(command -v python3) || return 1
  (umask 077 && mkdir -p "${place%/*}" && mkdir "$place") 2> /dev/null || return 0 # by another rank's part
  "$python" -I -S "$program" "$BAREBOAT_RUN" "$$" "$place" < /dev/null > /dev/null 2>&1 &
  at_exit "kill $! 2> /dev/null"
}
