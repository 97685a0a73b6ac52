# shellcheck shell=bash disable=SC2034,SC2154
# Copy the image to this node, keep it for all jobs of the user, and remove it when no job uses it.
# Expects: $image_archive, $image_name, $image_shared, $image_own, $image_inodes, $BAREBOAT_TREES, $HERE,
#   $BAREBOAT_CONTROL, $start, $part; cluster.sh.

# The image: each node copies it once, as one file, to its own scratch directory, where all jobs of the user
# share it. Containers are made of trees in $BAREBOAT_TREES; or in $image_shared, if it cannot be copied.
set_image() {
  image_tree=$BAREBOAT_TREES/$image_name image_lock='' unpacking='' reporting='' report_s=10
  # With mount points that only this job needs, it has a tree of its own ($image_own in the store).
  BAREBOAT_OWN_TREE=${image_own%/tree}
  BAREBOAT_OWN_TREE=$image_tree.own-${BAREBOAT_OWN_TREE##*/}
  read -r boot < /proc/sys/kernel/random/boot_id
}

keeps_image() { # whether the complete copy stays: a study's next run uses it, and its job removes it
  [ -e "$BAREBOAT_CONTROL/keep_image" ] && image_is_whole
}

image_is_whole() { # unpacked completely since the machine booted: after a crash the tree may have holes
  [ -d "$image_tree" ] && [ "$(cat "$image_tree.whole" 2> /dev/null)" = "$boot $BAREBOAT_HOST" ]
}

is_elsewhere() { # $1: a tree; whether another node, which may not see the lock, made it and may use it
  local host
  { read -r _ host < "$1.whole"; } 2> /dev/null && [ "${host:-$BAREBOAT_HOST}" != "$BAREBOAT_HOST" ]
}

told_delivery() { # $1: unpacked, found or shared; $2: seconds
  printf '%(%s)T %s %s %s %s\n' -1 "$BAREBOAT_HOST" "$1" "$2" "$(stat -c %s "$image_archive")" \
    >> "$BAREBOAT_CONTROL/deliveries.$BAREBOAT_HOST"
}

read_shared() { # $1: why the image cannot be on this node
  printf 'bareboat: the image is NOT copied to this node%s; it is read from the store: %s\n' "$HERE" "$1" >&2
  use_store
  told_delivery shared 0
}

use_store() { BAREBOAT_TREES=$image_shared BAREBOAT_OWN_TREE=$image_own; }

own_folders() { # the user's directory in the node's scratch, and in it the one for trees of this kind
  local scratch seen
  scratch=$(cd -- "${BAREBOAT_TREES%/*/*}" 2> /dev/null && pwd -P) || return 1
  if others_rename "$scratch"; then
    why="other users may rename files in $seen"
  elif own_folder "${BAREBOAT_TREES%/*}" && own_folder "$BAREBOAT_TREES"; then
    return 0
  fi
  why=${why:+$why; try: --node-scratch DIR}
  return 1
}

remove_image() { # $1: a tree; its lock is held exclusively
  # First, so that nobody considers the rest complete.
  rm -f "$1.whole" "$1.errors"
  rm -rf "$1" "$1.part" "$1".own-* 2> /dev/null || {
    # Directories that are not writable for their owner.
    find "$1" "$1.part" "$1".own-* -type d ! -perm -700 -exec chmod u+rwx {} + 2> /dev/null
    rm -rf "$1" "$1.part" "$1".own-*
  }
}

is_lock_of() { # $1: a tree, $2: a descriptor; whether it is the file that all others lock
  [ "$1.lock" -ef "/proc/self/fd/$2" ]
}

sweep_images() { # remove unused trees, except that of the lock $1: their jobs were killed
  local lock descriptor
  for lock in "${BAREBOAT_TREES%/*}"/*/*.lock; do
    [ "$lock" != "${1:-}" ] || continue
    [ -f "$lock" ] || continue
    ! is_elsewhere "${lock%.lock}" || continue
    { exec {descriptor}>> "$lock"; } 2> /dev/null || continue
    if flock -x -n "$descriptor" && is_lock_of "${lock%.lock}" "$descriptor"; then
      remove_image "${lock%.lock}"
      rm -f "$lock"
    fi
    exec {descriptor}>&-
  done
  rmdir "${BAREBOAT_TREES%/*}"/* "${BAREBOAT_TREES%/*}" 2> /dev/null
}

make_place() { # $1: a directory (d) or a file (f) as a mount point; $2: its path
  if [ -L "$2" ] || [ ! -e "$2" ]; then
    mkdir -p "${2%/*}" 2> /dev/null
    [ -w "${2%/*}" ] || chmod u+rwx "${2%/*}" || return 1
    [ ! -L "$2" ] || rm "$2"
    case $1 in
      d) mkdir -p "$2" ;;
      *) : >> "$2" ;;
    esac
  fi
}

make_image_places() { # mount points that every job needs and the image lacks
  local place
  while IFS= read -r -d '' place; do # d/a/folder or f/a/file
    make_place "${place:0:1}" "$image_tree${place:1}" || return 1
  done < "$image_archive.places"
}

make_own_tree() { # make it of links to the image's, by the store's list; once for all jobs with such mounts
  local part=$BAREBOAT_OWN_TREE.$BASHPID
  [ -n "$image_own" ] && [ ! -d "$BAREBOAT_OWN_TREE" ] || return 0
  if mkdir -m 700 "$part" && fill_own_tree "$part" 2> /dev/null; then
    mv -T "$part" "$BAREBOAT_OWN_TREE" 2> /dev/null
  fi
  rm -rf "$part" 2> /dev/null
  [ -d "$BAREBOAT_OWN_TREE" ] # or another job was faster
}

fill_own_tree() { # $1: the new tree
  local entry path folder='' links=() folders=() count=0
  while IFS= read -r -d '' entry; do # a letter, which images/deployment/roots.py explains, and a path
    path=${entry:2}
    case $entry in
      l/*) links+=("$image_tree/$path") && continue ;;
      b/*) mkdir "$1/$path" && continue ;;
    esac
    link_into "$1/$folder" || return 1
    case $entry in
      a/*) cp -al "$image_tree/." "$1" ;;
      n/*)
        folders[count++]=$path folder=$path
        [ -d "$1/$path" ] || mkdir -m 700 "$1/$path"
        ;;
      *) make_place "${entry:0:1}" "$1/$path" ;;
    esac || return 1
  done < "${image_own%/tree}/how"
  while ((count-- > 0)); do
    path=${folders[count]}
    chmod --reference="$image_tree/$path" "$1/$path" && touch -r "$image_tree/$path" "$1/$path" || return 1
  done
}

link_into() { # $1: a directory, for the paths in `links`, which may be too many for one command
  [ "${#links[@]}" -gt 0 ] || return 0
  printf '%s\0' "${links[@]}" | xargs -0 cp -al -t "$1" -- || return 1
  links=()
}

report_copy() { # $1: the process that reads the image's file; report to the log every $report_s seconds
  local descriptor position size began=$SECONDS seconds
  trap 'kill "$!" 2> /dev/null; exit' TERM
  size=$(stat -c %s "$image_archive")
  while
    sleep "$report_s" > /dev/null 2>&1 &
    wait "$!"
    kill -0 "$1" 2> /dev/null
  do
    seconds=$((SECONDS - began))
    for descriptor in "/proc/$1/fd"/*; do
      [ "$descriptor" -ef "$image_archive" ] || continue
      { read -r _ position < "/proc/$1/fdinfo/${descriptor##*/}"; } 2> /dev/null || continue
      ((position > 0 && seconds > 0)) || continue
      printf 'bareboat: copying the image to this node%s: %s of %s MB, %s MB/s, about %s s left\n' "$HERE" \
        "$((position / 1000000))" "$((size / 1000000))" "$((position / seconds / 1000000))" \
        "$(((size - position) * seconds / position))" >&2
    done
  done
}

end_copy() { # stop unpacking and its reports
  local pid
  for pid in $unpacking $reporting; do
    kill "$pid" 2> /dev/null
    wait "$pid"
  done
  unpacking='' reporting=''
}

unpack_image() { # sets why on failure
  local free needed part=$image_tree.part
  remove_image "$image_tree"
  mkdir -m 700 "$part" 2> /dev/null || {
    why="$part cannot be made"
    return 1
  }
  : 2> /dev/null > "$part/trial" && chmod 700 "$part/trial"
  [ -x "$part/trial" ] || {
    why="no program can run from $part: it is full, or mounted noexec"
    return 1
  }
  rm -f "$part/trial"
  # A file's last block is allocated completely.
  needed=$(($(stat -c %s "$image_archive") / 1024 + image_inodes * 2))
  free=$(df -Pk "$part" 2> /dev/null | awk 'NR == 2 { print $4 }')
  if [ "${free:-$needed}" -lt "$needed" ]; then
    why="$part needs $((needed / 1024)) MiB, and there are $((free / 1024)) MiB free"
    return 1
  fi
  free=$(df -Pi "$part" 2> /dev/null | awk 'NR == 2 { print ($2 ~ /^[1-9]/) ? $4 : "" }')
  if [ "${free:-$image_inodes}" -lt "$image_inodes" ]; then
    why="$part needs $image_inodes inodes, and there are $free free"
    return 1
  fi
  # In the background, because bash runs a trap only between commands or during `wait`.
  tar -xopf "$image_archive" -C "$part" < /dev/null > /dev/null 2> "$image_tree.errors" &
  unpacking=$!
  report_copy "$unpacking" < /dev/null &
  reporting=$!
  if wait "$unpacking"; then
    unpacking=
    end_copy
    mv "$part" "$image_tree" && echo "$boot $BAREBOAT_HOST" 2> /dev/null > "$image_tree.whole"
    image_is_whole && return 0
    why="$image_tree cannot be made"
  else
    unpacking=
    end_copy
    why="unpacking it ended with: $(tail -n 1 "$image_tree.errors" 2> /dev/null)"
  fi
  return 1
}

bring_image() { # make it available on this node, with its lock shared; otherwise use the store's
  local why='' how=found began=$SECONDS attempt
  if ! command -v flock > /dev/null || ! command -v tar > /dev/null; then
    read_shared 'it requires flock and tar'
    return "$?"
  fi
  for attempt in {1..50}; do
    if own_folders && { exec {image_lock}>> "$image_tree.lock"; } 2> /dev/null; then
      if ! flock -s "$image_lock" 2> /dev/null; then
        why="files in $BAREBOAT_TREES cannot be locked"
        break
      fi
      if is_lock_of "$image_tree" "$image_lock"; then
        image_is_whole && break
        if is_elsewhere "$image_tree"; then
          why="${BAREBOAT_TREES%/*/*} is not local to this node"
          exec {image_lock}>&-
          image_lock=
          break
        fi
        # Only for a second: a job that has unpacked the tree meanwhile may hold the lock shared until it ends.
        # While one unpacks, the next `flock -s` waits.
        if flock -x -w 1 "$image_lock" && is_lock_of "$image_tree" "$image_lock" &&
          ! image_is_whole && ! is_elsewhere "$image_tree"; then
          how=unpacked
          unpack_image || break
        fi
      fi
      exec {image_lock}>&- # and again, shared: it may have been removed in between
    elif [ -n "$why" ]; then
      break
    elif [ ! -w "${BAREBOAT_TREES%/*/*}" ]; then
      why="${BAREBOAT_TREES%/*/*} is not a writable directory"
      break
    elif [ "$attempt" -gt 1 ]; then # the first time, the last user may just have removed the directories
      sleep 0.1
    fi
    image_lock=
    [ "$attempt" -lt 50 ] || why="no lock can be obtained in $BAREBOAT_TREES"
  done
  [ -n "$why" ] || make_image_places || why="what is mounted can have no place in $image_tree"
  [ -n "$why" ] || make_own_tree || why="$BAREBOAT_OWN_TREE cannot be made"
  if [ -n "$why" ]; then
    drop_image
    read_shared "$why"
    return "$?"
  fi
  keeps_image || sweep_images "$image_tree.lock"
  told_delivery "$how" "$((SECONDS - began))"
  if [ "$how" = found ]; then
    printf 'bareboat: the image is on this node%s already, in %s\n' "$HERE" "$image_tree" >&2
  else
    printf 'bareboat: the image is on this node%s: %s MB unpacked in %s s to %s\n' "$HERE" \
      "$(($(stat -c %s "$image_archive") / 1000000))" "$((SECONDS - began))" "$image_tree" >&2
  fi
}

drop_image() { # whoever gets the lock exclusively is the last user and removes the tree
  [ -n "$image_lock" ] || return 0
  end_copy
  if ! keeps_image && flock -x -n "$image_lock" && is_lock_of "$image_tree" "$image_lock"; then
    remove_image "$image_tree"
    rm -f "$image_tree.lock"
  fi
  exec {image_lock}>&-
  image_lock=
  rmdir "${image_tree%/*}" "${image_tree%/*/*}" 2> /dev/null
}

# -- the parts of the script -----------------------------------------------------------------------

use_image() { # on a node, or for a rank
  local attempt
  set_image
  if [ "$start" != program ]; then # this part starts the ranks, and uses the image until it ends
    if [ "$part" = --leave ]; then # after the last run of a study
      sweep_images
      exit 0
    fi
    at_exit drop_image
    bring_image
    return 0
  fi
  # Each rank has a part of its own, after those of the check: the image stays in between.
  at_exit leave_image
  case $part in
    --bring)
      bring_image
      exit
      ;;
    --leave)
      for ((attempt = 1; attempt <= what; attempt++)); do # processes that are about to end still have it
        sweep_images
        [ -e "$image_tree.lock" ] || break
        sleep 0.3
      done
      # Also where another job still uses it: a failing node ends the others' parts.
      exit 0
      ;;
  esac
  use_copy
}

use_copy() { # the copy made by the part --bring
  if { exec {image_lock}< "$image_tree.lock"; } 2> /dev/null; then
    flock -s "$image_lock" && is_lock_of "$image_tree" "$image_lock" && image_is_whole && make_own_tree && return 0
    exec {image_lock}<&-
    image_lock=
  fi
  case $(tail -n 1 "$BAREBOAT_CONTROL/deliveries.$BAREBOAT_HOST" 2> /dev/null) in
    *" shared "*) use_store ;;
    *) read_shared 'it does not exist any more' ;;
  esac
}

leave_image() { [ "$status" -lt 128 ] || drop_image; } # after a signal no more ranks are started here

bring_images() { # on the first node: to every node, and remove them afterwards
  left=
  at_exit 'leave_images 1'
  everywhere --bring "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" &
  await "$!" || finish 3
}

leave_images() { # $1: number of attempts; also because steps that are not cleaned up block others
  local attempt
  [ -z "$left" ] && [ ! -e "$BAREBOAT_CONTROL/keep_image" ] || return 1
  left=1
  for ((attempt = 1; attempt <= $1; attempt++)); do
    everywhere --leave "$BAREBOAT_RUN" "$BAREBOAT_CONTROL" "$1" 2> "$BAREBOAT_CONTROL/leaving.log" && return 0
    sleep 1
  done
}
