# shellcheck shell=bash disable=SC2034,SC2154
# The values of environment_from, which no scheduler exports unchanged: from the file beside the script that was
# submitted. A script that is submitted by hand has no such file, and gets them from its environment.
# Expects: $start, $BAREBOAT_CONTROL, $BAREBOAT_NODES; common.sh.

find_environment() { # of the run, of all points of a sweep, or of the job that runs this arm of a study
  environment_file=$BAREBOAT_CONTROL
  ! has sweep || environment_file=${BAREBOAT_CONTROL%/points/*}
  ! has meter || environment_file=${BAREBOAT_CONTROL%/work.*}
  environment_file+=/environment
}

read_environment() { # exported, on every node and in every part that a program starts
  local name value
  find_environment
  [ -e "$environment_file" ] || return 0
  while IFS= LC_ALL=C read -r -d '' name && IFS= LC_ALL=C read -r -d '' value; do
    export "$name=$value"
  done < "$environment_file"
}

environment_names() { # of the variables in the file, a line each
  local name
  find_environment
  [ -e "$environment_file" ] || return 0
  while IFS= LC_ALL=C read -r -d '' name && IFS= LC_ALL=C read -r -d '' _; do
    printf '%s\n' "$name"
  done < "$environment_file"
}

read_environment_first() { # removes the file if no other part and no other start reads it
  read_environment
  if [ "$BAREBOAT_NODES" -eq 1 ] && [ "$start" != program ] && ! has requeue && ! has sweep && ! has meter; then
    rm -f "$environment_file"
  fi
}

may_start_again() { # $1: the exit code: after a signal or the loss of a node
  case $1 in 70 | 129 | 130 | 143) ;; *) return 1 ;; esac
}

# $1: the exit code. The file stays where the scheduler may start the job again, after a signal or the loss of a
# node: then Bareboat removes it, when it finds that the run is over.
remove_environment() {
  ! has meter || return 0
  if has requeue && may_start_again "$1"; then return 0; fi
  find_environment
  ! has sweep || is_last_point || return 0
  rm -f "$environment_file"
}
