# shellcheck shell=bash disable=SC2034,SC2154
# The command is started once on a node, and its ranks write their output to files.
# Expects: $rank_logs, $ranks_per_node, $BAREBOAT_NODE.

# Each rank's output goes to files, and from there to the job's output line by line, with the rank's number:
# new lines every 0.2 s, and the rest when the ranks have ended. (Only the file keeps zero bytes.)
follow_output() {
  trap '' TERM INT HUP
  local k lines last over='' rests=()
  while [ -z "$over" ]; do
    read -r -t 0.2 -u 5 || [ "$?" -gt 128 ] || over=1
    for k in "${!logs[@]}"; do
      while mapfile -n 1000 -u "${logs[k]}" lines && [ "${#lines[@]}" -gt 0 ]; do
        lines[0]=${rests[k]:-}${lines[0]} last=$((${#lines[@]} - 1)) rests[k]=
        # The last line may be incomplete.
        if [[ ${lines[last]} != *$'\n' ]]; then
          rests[k]=${lines[last]}
          unset "lines[last]"
        fi
        [ "${#lines[@]}" -eq 0 ] || tell "$k" "${lines[@]}"
      done
    done
  done
  for k in "${!logs[@]}"; do [ -z "${rests[k]:-}" ] || tell "$k" "${rests[k]}"; done
}

tell() { # $1: index of the file, $2...: lines
  local rank=$((BAREBOAT_NODE * ranks_per_node + $1 / 2)) to=$(($1 % 2 + 1))
  printf "[rank $rank] %s" "${@:2}" >&"$to"
}

follow_ranks() {
  local number log opened
  logs=()
  set -C # a new file, not a link that a container on another node has put in its place
  for ((number = 0; number < ranks_per_node; number++)); do
    for log in "$rank_logs/$((BAREBOAT_NODE * ranks_per_node + number))".{out,err}; do
      : > "$log" || exit 3
      exec {opened}< "$log"
      [ ! -L "$log" ] || exit 3
      [ "$log" -ef "/proc/self/fd/$opened" ] || exit 3
      logs+=("$opened")
    done
  done
  set +C
  # A pipe without data: its end shows that the ranks have ended.
  exec 5< <(:)
  exec 6> /proc/self/fd/5
  follow_output 6>&- &
  follower=$!
  for opened in 5 "${logs[@]}"; do exec {opened}<&-; done
}

followed() { # the rest of the output when the ranks have ended
  exec 6>&-
  wait "$follower"
}
