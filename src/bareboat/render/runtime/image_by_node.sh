# shellcheck shell=bash disable=SC2034,SC2154
# A node's part starts ranks, and uses the image as long as it lives.
# Expects: $part; image.sh, at_exit.sh.

if [ "$part" = --leave ]; then # after the last run of a study
  sweep_images
  exit 0
fi
at_exit drop_image
bring_image
