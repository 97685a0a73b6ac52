# shellcheck shell=bash disable=SC2034,SC2154
# Whether other users can exchange files in a directory.
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
