# shellcheck shell=bash disable=SC2034,SC2154
# A command on every node, where nodes are reached one by one, by on_host HOST WORD... Signals for the ranks do not use
# it: a second command on a node may need a slot that the first one holds, and one to a dead node may hang forever. They
# are written to a file of the run's directory, which every node polls once a second.
# Expects: $hosts, $BAREBOAT_CONTROL; on_host of the scheduler, and nodes_down if it has one.

# Seconds for a node's part after SIGTERM: 23 until SIGKILL, and the way of the signal's file to the node. What
# started it there may wait for a dead node for hours.
ends_within_s=60
# Seconds between two questions which nodes are down.
asks_every_s=30

on_each_node() {
  local script=$1 how=$2 number status ended code=0 deadline='' children=() down=' ' asked=$SECONDS partial=''
  shift 2
  exec {ended}<> <(:) # each part's number and exit code
  for number in "${!hosts[@]}"; do
    (
      exec < /dev/null
      if [ "$number" -eq 0 ]; then
        bash "$script" "$how" 0 "$@"
      else
        on_host "${hosts[number]}" bash "$script" "$how" "$number" "$@"
      fi
      echo "$number $?" >&"$ended"
    ) &
    children[number]=$!
  done
  while [ "${#children[@]}" -gt 0 ] && [ "$SECONDS" -lt "${deadline:-$((SECONDS + 1))}" ]; do
    [ "$how" != --node ] || [ "$SECONDS" -lt "$((asked + asks_every_s))" ] || end_down
    read_end || continue
    unset "children[number]"
    if [ "$how" = --node ] && is_lost "$number"; then
      echo "${hosts[number]}" >> "$BAREBOAT_CONTROL/lost"
      [ "$status" -ne 0 ] || status=70 # qrsh returns 0 when its connection breaks
    fi
    [ "$status" -ne 0 ] || continue
    [ "$code" -eq 0 ] || continue
    code=$status deadline=$((SECONDS + ends_within_s))
    pass_on END # otherwise the others would wait for this node forever
  done
  exec {ended}>&-
  for number in "${!children[@]}"; do
    [ "$how" != --node ] || echo "${hosts[number]}" >> "$BAREBOAT_CONTROL/lost"
    end_tree "${children[number]}"
  done
  return "$code"
}

read_end() { # of the next part that ends: $number and $status. Fails after two seconds without one
  local other
  read_line 2 && return 0
  for other in "${!children[@]}"; do # one that was killed reports nothing
    kill -0 "${children[other]}" 2> /dev/null && continue
    read_line 0.2 || number=$other status=137
    return 0
  done
  return 1
}

read_line() { # $1: seconds. What was read of a line when they are over is kept in $partial
  local rest=''
  IFS= read -r -t "$1" -u "$ended" rest || {
    partial+=$rest
    return 1
  }
  rest=$partial$rest
  number=${rest%% *} status=${rest##* } partial=''
}

# What started the part of a node that is down waits for it for minutes. The scheduler must report it twice.
end_down() {
  local before=$down number
  declare -F nodes_down > /dev/null || return 0
  down=" $(nodes_down "${hosts[@]}" 2> /dev/null | tr '\n' ' ') " asked=$SECONDS
  for number in "${!children[@]}"; do
    [[ $number -gt 0 && $before == *" ${hosts[number]} "* && $down == *" ${hosts[number]} "* ]] || continue
    disown "${children[number]}" # bash reports no kill
    end_tree "${children[number]}"
  done
}

# Of ranks that a program started: it returns a code of its own, and the scheduler may not know yet which node is down.
find_lost() {
  local pause_s
  [ "$start" = program ] && [ "$BAREBOAT_NODES" -gt 1 ] && declare -F nodes_down > /dev/null || return 0
  # No rank failed by itself, not all came to their end, and the job was not cancelled.
  [[ ${failed_status:-143} =~ ^(129|130|137|143)$ ]] && [ -z "$stopped" ] || return 0
  [ "$(cat "$BAREBOAT_CONTROL"/exits.* | wc -l)" -lt "$world_size" ] || return 0
  for pause_s in 0 5 10 15 30; do
    sleep "$pause_s"
    ! nodes_down "${hosts[@]}" | sort -u | grep -xF "${hosts[@]/#/-e}" > "$BAREBOAT_CONTROL/lost" || return 0
  done
} 2> /dev/null

is_lost() { # $1: a node whose part began and did not come to its end. Its files may appear late
  local file=$BAREBOAT_CONTROL/ends.$1 looks
  for ((looks = 0; looks < 25; looks++)); do
    [ -e "$file" ] && [ ! -s "$file" ] || return 1
    sleep 0.2
    : > "$BAREBOAT_CONTROL/look" && rm "$BAREBOAT_CONTROL/look"
  done
}

end_tree() { # $1: a process; it and all below it
  local below
  read -r below 2> /dev/null < "/proc/$1/task/$1/children"
  kill -KILL "$1" 2> /dev/null
  for below in $below; do end_tree "$below"; done
}

pass_on() { echo "$1" >> "$BAREBOAT_CONTROL/signals"; }
