# shellcheck shell=bash disable=SC2034,SC2154
# What watches the ranks, beside them: the watchdog, and whether they are one world.
# Expects: $start, $what, $BAREBOAT_NODE, $world_watch; watchdog.sh or world.sh.

begin_watching() { # before the ranks are started, once
  if has watchdog; then begin_watchdog; fi
  if has world; then begin_world; fi
}

start_watching() { # beside the ranks of this part
  local local_rank=0
  ! has watchdog || set_watch
  unit=$BAREBOAT_NODE
  if [ "$start" = program ]; then
    read -r unit local_rank < <(
      ! has names || rank_names
      echo "${RANK:-0} ${LOCAL_RANK:-0}"
    )
    [ "$what" != check ] || return 0
  fi
  ! has watchdog || start_watchdog
  ! has world || [ "$local_rank" -ne 0 ] || start_watching_world
}

stop_watching() { # after the ranks of this part
  # Otherwise the script's leftover processes would count as the command's.
  [ -z "$world_watch" ] || { kill -KILL "$world_watch" && wait "$world_watch"; } 2> /dev/null
}

end_watching() { # in the first part, when the ranks have ended
  if has watchdog && [ -e "$silence/verdict" ]; then end_hung; fi
  if has world; then end_world; fi
}
