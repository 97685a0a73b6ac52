# shellcheck shell=bash disable=SC2034,SC2154
# What the ranks wrote to directories that vanish with their containers: how many files, and the largest.
# Expects: $BAREBOAT_CONTROL, $BAREBOAT_HOST.

# A helper opens the containers' directories in memory, overlays included, while the ranks run. Open directories
# outlive their container, so that they can be searched when it has ended.
start_keeping() { # beside the ranks of this part, once they are started
  [ -n "${BAREBOAT_CONTROL:-}" ] || return 0
  began=${EPOCHREALTIME:-}
  [ -n "$began" ] || printf -v began '%(%s)T' -1
  began=@${began/,/.}
  exec {keeping}> >(
    exec 7<&0 < /dev/null > /dev/null 2>&1 3>&- 4>&- 5>&- 6>&- && seldom && keep_directories "$$" 0.03
  )
  keeper=$!
}

stop_keeping() { # when the ranks have ended
  [ -n "${keeper:-}" ] || return 0
  exec {keeping}>&-
  wait "$keeper" 2> /dev/null
  keeper=
}

report_discarded() { # in the first part: of all nodes
  local files=("$BAREBOAT_CONTROL"/discarded.*)
  [ ! -e "${files[0]}" ] || { seldom && show_discarded; }
}
