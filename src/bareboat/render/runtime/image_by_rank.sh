# shellcheck shell=bash disable=SC2034,SC2154
# A program starts the ranks, each in a part of its own, after those of the check: the image stays in between.
# Expects: $part, $what, $status; image.sh, at_exit.sh.

use_image() { # the copy made by the part --bring
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
use_image
