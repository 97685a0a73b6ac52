# shellcheck shell=bash disable=SC2034,SC2154
# What the ranks of this part may use, and what was requested for them: read by runs/node_resources.py.
# Expects: $start, $requested (processors, GPUs and threads of a rank, bytes of memory of a node), $ranks_per_node,
#   $BAREBOAT_CONTROL, $BAREBOAT_HOST; $scratch, else /tmp: node-local storage; $BAREBOAT_STORAGE: what `stat -f`
#   shows of that, where Bareboat starts the script, because a program takes longer than all else here.

# One line: RANKS NODE PROCESSORS BYTES GPUS REQUESTED... CLOCK QUOTA STORAGE. One program, because it is written
# before each start. The file's time of change is the file server's clock, the same for all nodes. Without a line the
# file shows that this part runs.
record_limits() {
  local lines cpus=- gpus=- ranks=$ranks_per_node memory_bytes=- quota=- storage=${BAREBOAT_STORAGE:-}
  if has no_limits; then
    : > "$BAREBOAT_CONTROL/limits.$BAREBOAT_HOST.$$"
    return 0
  fi
  [ "$start" != program ] || ranks=1
  mapfile -t lines < /proc/self/status
  [[ ${lines[*]} =~ Cpus_allowed_list:[[:space:]]*([0-9,-]+) ]] && cpus=${BASH_REMATCH[1]}
  count_gpus
  find_limits 2> /dev/null
  : "${storage:=$(exec stat -f -c '%a %b %S %d %c' "${scratch:-/tmp}" 2> /dev/null)}"
  [ -z "$storage" ] || in_kib "$storage"
  printf '%s %s %s %s %s %s %s %s %s\n' "$ranks" "$BAREBOAT_HOST" "$cpus" "$memory_bytes" "$gpus" \
    "${requested[*]}" "${EPOCHREALTIME:--}" "$quota" "${storage:--}" > "$BAREBOAT_CONTROL/limits.$BAREBOAT_HOST.$$"
}

in_kib() { # $1: FREE ALL BLOCK-SIZE FREE-INODES INODES
  # shellcheck disable=SC2086
  set -- $1
  storage="$(($1 * $3 / 1024)) $(($2 * $3 / 1024)) $4 $5"
}

count_gpus() { # those that the ranks may use: by the scheduler's variables, else by the node's devices
  local name
  for name in CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK; do
    [ -n "${!name+set}" ] || continue
    IFS=, read -ra lines <<< "${!name}"
    gpus=${#lines[@]}
    [ "${!name}" != NoDevFiles ] || gpus=0 # Slurm's word for none
    return 0
  done
  [ "${requested[1]}" -gt 0 ] && [ -e /dev/nvidiactl ] || return 0
  lines=(/dev/nvidia[0-9]*)
  gpus=${#lines[@]}
}

find_limits() { # the smallest of the control groups around this process; "-" for none
  local line
  mapfile -t lines < /proc/self/cgroup
  for line in "${lines[@]}"; do
    case $line in
      0::*) smallest_of "/sys/fs/cgroup${line#*:*:}" memory.max cpu.max ;;
      *:memory:*) smallest_of "/sys/fs/cgroup/memory${line#*:*:}" memory.limit_in_bytes '' ;;
      *:cpu:* | *:cpu,cpuacct:*) smallest_of "/sys/fs/cgroup/cpu${line#*:*:}" '' cpu.cfs_quota_us ;;
    esac
  done
}

smallest_of() { # $1: the directory of a control group, $2 and $3: its files for memory and processors
  local group=${1%/} bytes part period
  while [ "$group" != /sys/fs ]; do
    bytes='' part=''
    [ -z "$2" ] || [ ! -e "$group/$2" ] || read -r bytes < "$group/$2"
    case $bytes in
      '' | *[!0-9]* | ????????????????*) ;; # no limit
      *) if [ "$memory_bytes" = - ] || [ "$bytes" -lt "$memory_bytes" ]; then memory_bytes=$bytes; fi ;;
    esac
    [ -z "$3" ] || [ ! -e "$group/$3" ] || read -r part period < "$group/$3"
    case $part in
      '' | *[!0-9]*) ;; # no quota
      *)
        [ "$3" = cpu.max ] || read -r period < "$group/cpu.cfs_period_us"
        if [ "$quota" = - ] || [ "$((part * 100 / period))" -lt "$quota" ]; then quota=$((part * 100 / period)); fi
        ;;
    esac
    group=${group%/*}
  done
}
