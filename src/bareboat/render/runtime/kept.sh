# shellcheck shell=bash disable=SC2034,SC2154
# What the helper of discarded.sh does while the ranks run and when they have ended, and the report on it.
# Expects: $BAREBOAT_CONTROL, $BAREBOAT_HOST, $began.

# Called by Bareboat (execute/kept_directories.py), which keeps the directories of a script that it started.
show_kept() { # $1: when it was started; then each directory: its path, an open descriptor
  local places=() files=()
  began=@$1
  read -r BAREBOAT_HOST < /proc/sys/kernel/hostname
  shift
  while [ "$#" -gt 0 ]; do
    places+=("$1") files+=("/proc/$$/fd/$2/")
    shift 2
  done
  write_found "$$"
  report_discarded
}

keep_directories() { # $1: this part's process; $2: the first pause in seconds
  local pause number pid id root point at device options kind blocks free started
  local places=() files=() seen='' mounts opened
  for pause in "$2" 0.1 0.3 1 5 30 300; do
    if read -r -t "$pause" -u 7 || [ "$?" -le 128 ]; then break; fi
    [ -n "$seen" ] || see_own_mounts # not before: the shortest runs end in the first pause
    started=()
    started_by "$1"
    for pid in "${started[@]}"; do
      [ ! "/proc/$pid/ns/mnt" -ef /proc/self/ns/mnt ] || continue
      mapfile -t mounts < "/proc/$pid/mountinfo"
      for number in "${!mounts[@]}"; do
        kind=${mounts[number]##* - }
        [[ $kind =~ ^(tmpfs|overlay)\  ]] || continue
        read -r id _ device root point options _ <<< "${mounts[number]}"
        case $point in /dev* | /proc* | /sys* | /run* | */mnt/session*) continue ;; esac
        [[ $options == rw* ]] || continue
        # Of the host, or found already. Directories of Apptainer share a file system with its own files.
        [[ $seen != *" $device "* && $seen != *" $device:$root "* ]] || continue
        exec {at}< "/proc/$pid/root$point" || continue
        mapfile -t opened < "/proc/self/fdinfo/$at"
        # Another mount may be over it, such as the working directory over the home.
        [[ " ${opened[*]} " == *$'mnt_id:\t'"$id "* ]] || { exec {at}<&- && continue; }
        seen+="$device:$root "
        places+=("$point") files+=("/proc/$BASHPID/fd/$at/")
      done
    done
  done
  read -r -u 7 # until the ranks have ended
  [ "${#files[@]}" -gt 0 ] || return 0
  while read -r blocks free; do # used blocks, or not known
    [ "$blocks" -eq 0 ] || [ "$blocks" -ne "$free" ] || continue
    write_found "$1"
    return 0
  done < <(stat -f -c '%b %f' "${files[@]}")
}

see_own_mounts() { # those of the host
  seen=' '
  mapfile -t mounts < /proc/self/mountinfo
  for point in "${mounts[@]}"; do
    point=${point#* * } && seen+="${point%% *} "
  done
}

started_by() { # $1: a process; adds to `started` those of its descendants that are what an engine starts
  local child children
  read -ra children < "/proc/$1/task/$1/children" || [ "${#children[@]}" -gt 0 ] || return 0
  for child in "${children[@]}"; do
    [ "$child" = "$BASHPID" ] || [ "/proc/$child/exe" -ef "/proc/$1/exe" ] || started+=("$child")
    started_by "$child"
  done
}

# Lines BYTES PATH. Caches are not results. In an overlay the files of the image are links, whose inode another job
# may change.
write_found() {
  local number
  for number in "${!files[@]}"; do
    find "${files[number]}" -xdev \
      \( -name .cache -o -name .config -o -name .local -o -name .nv -o -name __pycache__ \) -prune \
      -o -type f -size +0 \( -newermt "$began" -o -links 1 -newerct "$began" \) \
      -printf "%s ${places[number]%/}/%P\n"
  done > "$BAREBOAT_CONTROL/discarded.$BAREBOAT_HOST.$1"
}

show_discarded() {
  local found
  found=$(cat "${files[@]}" | LC_ALL=C tr -d '\000-\011\013-\037\177' | LC_ALL=C sort -rn | awk '
    function size(bytes,  unit) {
      for (unit = 1; bytes >= 1000 && unit < 5; unit++) bytes /= 1000
      return sprintf(unit == 1 ? "%d B" : "%.1f %sB", bytes, substr(" kMGT", unit, 1))
    }
    { total += $1; bytes = $1; sub(/^[0-9]+ /, "") }
    NR <= 3 { shown = shown (NR > 1 ? ", " : "") $0 " (" size(bytes) ")" }
    END {
      if (NR) printf "%d file%s (%s) discarded with the container: %s%s\n", NR, (NR > 1 ? "s" : ""),
        size(total), shown, (NR > 3 ? ", ..." : "")
    }')
  [ -z "$found" ] || printf 'bareboat: %s\n  try: %s\n' "$found" \
    'write to the working directory, or to a directory under mounts' >&2
}
