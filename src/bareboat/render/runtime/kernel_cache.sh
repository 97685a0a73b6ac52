# shellcheck shell=bash disable=SC2034,SC2154
# Compiled GPU kernels, kept between runs: an archive in the user's store, of which this part uses a copy on the node.
# Expects: $kernel_cache, the directory of archives (empty: nothing is kept); $kernel_place, where the command finds the
#   copy (empty: at its path on the node); $kernel_variables, which name directories in it; $what, $HERE,
#   $BAREBOAT_HOST, $BAREBOAT_NODE; private.sh.

# Limits of all archives of a user, and of one archive.
kernel_limit_bytes=2147483648 kernel_limit_files=100000

# Tools write to their caches from many processes, with locks that shared file systems may not have. So only whole
# archives are read and written there, and no fault in them ends a job.
# A container may leave a link in place of a directory of its copy, and change it at any time. So nothing is unpacked
# into a copy that a container has seen, and one is read only by recursion, in which tar follows no link.
use_kernels() {
  local each why='' temporary
  kernel_copy=
  unset BAREBOAT_KERNELS "${kernel_variables[@]}"
  if [ -z "$kernel_cache" ] || [ "$what" = check ] || ! is_private_cache; then
    [ -z "$why" ] || tell_kernels "$why"
    return 0
  fi
  name_kernels
  temporary=$(temporary_directory)
  # Engines take paths with other characters for more than one word.
  [[ $temporary != *[!A-Za-z0-9/._+-]* ]] || return 0
  remove_left_kernels "$temporary/bareboat-kernels-$UID"
  kernel_copy=$(mktemp -d "$temporary/bareboat-kernels-$UID.XXXXXX" 2> /dev/null) || return 0
  { exec {kernels_used}< "$kernel_copy" && mkdir "$kernel_copy/shown"; } 2> /dev/null || return 0
  BAREBOAT_KERNELS=$kernel_copy/shown
  at_exit leave_kernels
  flock -s "$kernels_used" 2> /dev/null # until the last process of this part ends
  if is_kernel_archive; then
    [ "$BAREBOAT_NODE" != 0 ] || touch -c "$kernel_archive" 2> /dev/null # the oldest use is forgotten first
    tar -xf "$kernel_archive" -C "$BAREBOAT_KERNELS" 2> /dev/null ||
      find "$BAREBOAT_KERNELS" -mindepth 1 -delete 2> /dev/null
  fi
  mkdir -p "${kernel_variables[@]/#/$BAREBOAT_KERNELS/}" 2> /dev/null
  for each in "${kernel_variables[@]}"; do
    printf -v "$each" %s "${kernel_place:-$BAREBOAT_KERNELS}/$each"
  done
}

is_private_cache() { # whether only this user can write archives; sets why where another user can
  local real seen
  [ -d "$kernel_cache" ] || (umask 077 && mkdir -p "$kernel_cache") 2> /dev/null || return 1
  own_folder "$kernel_cache" || return 1
  real=$(cd -- "$kernel_cache" 2> /dev/null && pwd -P) || return 1
  ! others_rename "$real" || { why="other users may rename files in $seen" && return 1; }
}

# The archive for nodes like this: the same GPUs, driver and processor, which compilers read as well.
name_kernels() {
  local line file kinds=" $HOSTTYPE "
  for file in /proc/driver/nvidia/version /proc/driver/nvidia/gpus/*/information \
    /sys/class/kfd/kfd/topology/nodes/*/properties /proc/cpuinfo; do
    [ -r "$file" ] || continue
    while IFS= read -r line; do
      if [[ $line =~ Kernel\ Module.*[[:space:]]([0-9]+\.[0-9.]+)[[:space:]] ]] ||
        [[ $line =~ ^(Model|model name)[[:space:]]*:[[:space:]]*(.*) ]] ||
        [[ $line =~ ^gfx_target_version\ ([1-9][0-9]*) ]]; then
        line=${BASH_REMATCH[-1]//[!A-Za-z0-9.]/-}
        [[ $kinds == *" $line "* ]] || kinds+="$line "
        [[ $file != /proc/cpuinfo ]] || break
      fi
    done < "$file"
  done 2> /dev/null
  kinds=${kinds# } kinds=${kinds% }
  kinds=${kinds// /_}
  kernel_archive=$kernel_cache/${kinds:0:180}.tar
}

is_kernel_archive() {
  [ -f "$kernel_archive" ] && [ ! -L "$kernel_archive" ] && [ -O "$kernel_archive" ] &&
    [ "$(stat -c %s "$kernel_archive")" -le "$kernel_limit_bytes" ]
}

# A young one may be of a part that has made it and not locked it yet.
remove_left_kernels() { # $1: the beginning of their paths; copies of parts that were killed
  local copy descriptor
  for copy in "$1".*; do
    if [ -O "$copy" ] && [ ! -L "$copy" ] && { exec {descriptor}< "$copy"; } 2> /dev/null; then
      if flock -x -n "$descriptor" 2> /dev/null && [ -n "$(find "$copy" -maxdepth 0 -mmin +1 2> /dev/null)" ]; then
        rm -rf "$copy" 2> /dev/null
      fi
      exec {descriptor}<&-
    fi
  done
}

# The new files of the part that ends first; in later runs those of the others, if there are more.
leave_kernels() {
  local recent=() kept added lock=$kernel_archive.lock
  # A process that was killed may have left an incomplete file.
  [ "${code:-1}" -eq 0 ] || recent=(! -newermt '10 seconds ago')
  kept=$(kernels_kept)
  added=$(LC_ALL=C comm -23 <(kernels_in "$BAREBOAT_KERNELS") <(printf '%s\n' "$kept"))
  if [ -n "$added" ] && mkdir "$lock" 2> /dev/null; then
    keep_kernels
    rmdir "$lock"
  elif [ -n "$(find "$lock" -maxdepth 0 -mmin +10 2> /dev/null)" ]; then # of a part that was killed
    rmdir "$lock"
  fi
  rm -rf "$kernel_copy" 2> /dev/null
}

kernels_in() { # $1: a directory; lines BYTES PATH, at most as many as make it one too many
  find "$1" -type f ${recent[@]+"${recent[@]}"} -printf '%s %P\n' 2> /dev/null |
    head -n "$((kernel_limit_files + 1))" | LC_ALL=C sort
}

kernels_kept() {
  ! is_kernel_archive || tar -tvf "$kernel_archive" --numeric-owner --quoting-style=literal 2> /dev/null |
    awk '/^-/ { bytes = $3; sub(/^[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ /, ""); print bytes, $0 }' | LC_ALL=C sort
}

keep_kernels() {
  local bytes files part=$kernel_archive.$BAREBOAT_HOST.$$
  read -r bytes files < <(printf '%s\n' "$kept" "$added" |
    awk 'NF { bytes += $1; files++ } END { printf "%.0f %d\n", bytes, files }')
  if [ "$bytes" -gt "$kernel_limit_bytes" ]; then
    rm -f "$kernel_archive" # the next run begins without any
    tell_kernels "they need $((bytes / 1000000)) MB, and the limit is $((kernel_limit_bytes / 1000000)) MB"
  elif [ "$files" -gt "$kernel_limit_files" ]; then
    rm -f "$kernel_archive"
    tell_kernels "they are $files files, and the limit is $kernel_limit_files"
  elif (umask 077 && add_kernels) 2> /dev/null && mv -f "$part" "$kernel_archive" 2> /dev/null; then
    forget_kernels
  else
    rm -f "$part"
    tell_kernels "$kernel_cache cannot be written"
  fi
}

add_kernels() { # make $part, the archive with the new files: by a second copy, which no container has seen
  local new=$kernel_copy/new
  mkdir "$new" || return 1
  tar -cf - -C "$BAREBOAT_KERNELS" --hard-dereference --anchored --no-wildcards -X <(known_kernels) . |
    tar -xf - -C "$new"
  [ "${PIPESTATUS[*]}" = '0 0' ] || return 1
  ! is_kernel_archive || ! tar -tf "$kernel_archive" > /dev/null || cp "$kernel_archive" "$part" || return 1
  cd "$new" && find . -type f ${recent[@]+"${recent[@]}"} -printf '%P\0' |
    tar -rf "$part" --no-recursion --hard-dereference --mode='u=rwX,go=' --null -T -
  [ "${PIPESTATUS[*]}" = '0 0' ]
}

known_kernels() { # those of the copy that are in the archive already
  LC_ALL=C comm -12 <(kernels_in "$BAREBOAT_KERNELS") <(printf '%s\n' "$kept") | sed 's|^[0-9]* |./|'
}

forget_kernels() { # all of the user's archives together keep to the limit
  local bytes path total=0
  while read -r -d '' _ bytes path; do
    total=$((total + bytes))
    [ "$total" -le "$kernel_limit_bytes" ] || rm -f "$path"
  done < <(find "${kernel_cache%/*/*}" -mindepth 3 -maxdepth 3 -type f -printf '%T@ %s %p\0' | sort -zrn)
} 2> /dev/null

tell_kernels() { # $1: why
  [ "$BAREBOAT_NODE" != 0 ] ||
    printf 'bareboat: compiled GPU kernels are not kept%s: %s\n' "$HERE" "$1" >&2
}
