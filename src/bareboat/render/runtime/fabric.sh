# shellcheck shell=bash disable=SC2034,SC2154
# The transport of the ranks between nodes.
# Expects: $by_sockets, $by_fabric: patterns; $fabric_there, $fabric_tellers: the expected number of logs,
#   $fabric_logs: those below $BAREBOAT_RUN_DIR; cluster.sh.

# The way that the ranks take to other nodes, from their libraries' logs.
# $1: a pattern, $2...: files and directories; prints the files that match. Containers may write them: follow no
# link, and read only files of a plausible size.
saying() {
  find "${@:2}" -maxdepth 1 -type f -size -65536k -exec grep -laE -- "$1" {} + 2> /dev/null
}

fabric_way() { # $@: files and directories with the libraries' logs
  if saying "$by_sockets" "$@" | grep -q .; then
    echo sockets
  elif saying "$by_fabric" "$@" | grep -q .; then
    echo fabric
  fi
}

fallen() { # $1: where the job requires a fabric, the reason before it starts; without it a running job ends
  : > "$BAREBOAT_CONTROL/no_fabric"
  if ! has fabric_required; then
    printf 'bareboat: WARNING: ranks fell back to TCP although the nodes have %s\n' "$fabric_there" >&2
    return 0
  fi
  printf 'bareboat: the ranks %s, but the job requires a fabric; the nodes have %s\n' \
    "${1:-fell back to TCP}" "$fabric_there" >&2
  printf '  try: an image with libraries for this network; or fabric = "mark"\n' >&2
  [ -n "${1:-}" ] || pass_on END
}

judge_check() { # by what the ranks of the MPI check reported
  case $(fabric_way "$BAREBOAT_CONTROL/mpi_check.log"),$features in
    fabric,*) return 0 ;;
    sockets,*) fallen 'fell back to TCP' ;;
    *' fabric_required '*) fallen 'do not report their transport' ;;
  esac
  ! has fabric_required || finish 3
}

begin_fabric() { # before the job
  # Of an earlier start.
  rm -f "$BAREBOAT_CONTROL/no_fabric"
  ! has fabric_check || judge_check
  has fabric_watch || return 0
  fabric_words=("${fabric_logs[@]/#/$BAREBOAT_RUN_DIR/}")
  watch_fabric < /dev/null &
  fabric_watch=$!
}

watch_fabric() { # Libraries log it at their start or later. Polls every two seconds until all have.
  while sleep 2 > /dev/null 2>&1; do
    kill -0 "$$" 2> /dev/null || exit
    case $(fabric_way "${fabric_words[@]}") in
      sockets)
        fallen
        exit
        ;;
      fabric)
        [ "$(saying "$by_fabric" "${fabric_words[@]}" | wc -l)" -lt "$fabric_tellers" ] || exit
        ;;
    esac
  done
}

end_fabric() { # after the job: a short one may end before the watcher's next poll
  has fabric_watch || return 0
  kill "$fabric_watch" 2> /dev/null
  if has fabric_required; then
    [ "$code" -ne 0 ] || [ "$(fabric_way "${fabric_words[@]}")" != sockets ] || fallen 'used TCP sockets'
    [ ! -e "$BAREBOAT_CONTROL/no_fabric" ] || finish 3
  else
    [ -e "$BAREBOAT_CONTROL/no_fabric" ] || [ "$(fabric_way "${fabric_words[@]}")" != sockets ] || fallen
  fi
}
