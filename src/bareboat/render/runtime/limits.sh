# shellcheck shell=bash disable=SC2034,SC2154
# What the ranks of this part may use, and what was requested for them: read by runs/health.py.
# Expects: $start, $requested (processors, GPUs and threads of a rank, bytes of memory of a node), $ranks_per_node,
#   $BAREBOAT_CONTROL, $BAREBOAT_HOST.

# One line: RANKS NODE PROCESSORS BYTES GPUS REQUESTED… CLOCK. Builtins only: it is written before each start. The
# file's time of change is the file server's clock, the same for all nodes.
record_limits() {
  local lines cpus=- gpus=- ranks=$ranks_per_node memory_bytes=-
  [ "$start" != program ] || ranks=1
  mapfile -t lines < /proc/self/status
  [[ ${lines[*]} =~ Cpus_allowed_list:[[:space:]]*([0-9,-]+) ]] && cpus=${BASH_REMATCH[1]}
  if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    IFS=, read -ra lines <<< "$CUDA_VISIBLE_DEVICES"
    gpus=${#lines[@]}
  fi
  find_memory_limit
  printf '%s %s %s %s %s %s %s\n' "$ranks" "$BAREBOAT_HOST" "$cpus" "$memory_bytes" "$gpus" "${requested[*]}" \
    "${EPOCHREALTIME:--}" > "$BAREBOAT_CONTROL/limits.$BAREBOAT_HOST.$$"
}

find_memory_limit() { # the smallest of the control groups around this process; "-" for none
  local lines line top file group bytes
  mapfile -t lines < /proc/self/cgroup
  for line in "${lines[@]}"; do
    case $line in
      0::*) top=/sys/fs/cgroup file=memory.max ;;
      *:memory:*) top=/sys/fs/cgroup/memory file=memory.limit_in_bytes ;;
      *) continue ;;
    esac
    group=${line#*:*:}
    while :; do
      group=${group%/}
      bytes=
      [ ! -e "$top$group/$file" ] || read -r bytes < "$top$group/$file"
      case $bytes in
        '' | *[!0-9]* | ????????????????*) ;; # no limit
        *) if [ "$memory_bytes" = - ] || [ "$bytes" -lt "$memory_bytes" ]; then memory_bytes=$bytes; fi ;;
      esac
      [ -n "$group" ] || break
      group=${group%/*}
    done
  done
} 2> /dev/null
