# shellcheck shell=bash disable=SC2034,SC2154
# Directories in which no other user can exchange files.
# Expects: $HERE on a cluster's node.

others_rename() { # $1: a directory; whether others may rename files in it or above it, and where (seen)
  local place=$1 places=() owner group mode root=''
  while [ -n "$place" ]; do
    places+=("$place")
    place=${place%/*}
  done
  while read -r owner group mode seen; do
    : "${root:=$owner}" # nobody, in a user namespace without root
    seen="$seen${HERE:-} (owner $owner, mode $mode)"
    case $owner in 0 | "$UID" | "$root") ;; *) return 0 ;; esac
    ((0$mode & 01000 || (0$mode & 022) == 0)) && continue # sticky, or not writable for others
    # root's group, and the user's own group of the same name, have no other members.
    ((0$mode & 2)) || { [ "$group" != 0 ] && [ "$group $(id -un)" != "$(id -g) $(id -gn)" ]; } && return 0
  done < <(stat -c '%u %g %a %n' -- / "${places[@]}")
  return 1
}

temporary_directory() { # where nobody else can put another script in the place of this one
  local place real seen
  for place in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
    case $place in /*) ;; *) continue ;; esac
    if real=$(cd -- "$place" 2> /dev/null && pwd -P) && ! others_rename "$real"; then
      place=$real
      break
    fi
  done
  printf '%s' "$place"
}

own_folder() { # $1: a directory for this user only, made if missing; sets why where it is another user's
  local seen
  mkdir -m 700 "$1" 2> /dev/null
  # In one look: a job that ends may remove it meanwhile.
  seen=$(LC_ALL=C stat -c '%u %a %F' "$1" 2> /dev/null) || return 1
  [ "$seen" != "$UID 700 directory" ] || return 0
  # Another user could have made it, and containers would run its content.
  why="$1 is not a directory of this user alone, but: $seen"
  return 1
}
