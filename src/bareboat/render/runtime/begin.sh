# shellcheck shell=bash disable=SC2034,SC2154
# The first node: the run's directories and its start.
# Expects: $BAREBOAT_CONTROL, $BAREBOAT_RUN_DIR, $BAREBOAT_HOST, $BAREBOAT_JOB.

# Facts about this node, for `bareboat lock` and `bareboat diff`.
node_facts() {
  local line
  read -r line < /proc/sys/kernel/osrelease && printf 'kernel %s\n' "$line"
  while IFS= read -r line; do
    [[ $line != 'model name'* ]] || { printf 'cpu %s\n' "${line#*: }" && break; }
  done < /proc/cpuinfo
  while IFS= read -r line; do
    [[ $line != PRETTY_NAME=* ]] || printf 'distribution %s\n' "${line#*=}"
  done < /etc/os-release
  read -r line < /proc/meminfo && printf 'memory %s\n' "$line"
  read -r line < /proc/driver/nvidia/version && printf 'nvidia %s\n' "$line"
  printf 'libc %s\n' "$(getconf GNU_LIBC_VERSION)"
}

# All starts append to one file, at once. What a scheduler writes itself goes to a file of its own: some write it
# when the job has ended, and overwrite what an earlier start or another element of an array left.
keep_log() {
  exec >> "${BAREBOAT_CONTROL%/*}/output.log" 2>&1 || exit 3
}

begin_run() {
  local begun
  [ -d "$BAREBOAT_CONTROL" ] || (umask 077 && mkdir -p "$BAREBOAT_CONTROL") || exit 3
  printf '%(%s)T %s %s\n' -1 "$BAREBOAT_HOST" "$BAREBOAT_JOB" >> "$BAREBOAT_CONTROL/starts"
  node_facts > "$BAREBOAT_CONTROL/machine" 2> /dev/null
  mapfile -t begun < "$BAREBOAT_CONTROL/starts"
  starts=${#begun[@]}
  if [ "$starts" -gt 1 ]; then
    rm -f "$BAREBOAT_CONTROL"/{exits,ends,over,limits,said,discarded,passed,canary}.* "$BAREBOAT_CONTROL"/{exit_code,signals,lost}
    [ ! -d "$BAREBOAT_CONTROL/logs" ] || mv "$BAREBOAT_CONTROL/logs" "$BAREBOAT_CONTROL/logs.$((starts - 1))"
    [ ! -d "$BAREBOAT_CONTROL/usage" ] || mv "$BAREBOAT_CONTROL/usage" "$BAREBOAT_CONTROL/usage.$((starts - 1))"
    # A later start trusts nothing that containers wrote, and follows no link of theirs.
    [ ! -d "$BAREBOAT_RUN_DIR" ] || mv "$BAREBOAT_RUN_DIR" "$BAREBOAT_RUN_DIR.$((starts - 1))"
  fi
  [ -d "$BAREBOAT_RUN_DIR" ] || (umask 077 && mkdir "$BAREBOAT_RUN_DIR") || exit 3
  script=$BAREBOAT_CONTROL/job.sh
  # It contains values of environment variables.
  [ -e "$script" ] || (umask 077 && cp "$0" "$script") || exit 3
}
