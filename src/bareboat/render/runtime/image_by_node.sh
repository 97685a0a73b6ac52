# shellcheck shell=bash disable=SC2034,SC2154
# A node's part starts ranks, and uses the image until it ends.
# Expects: $part; image.sh, at_exit.sh.

if [ "$part" = --leave ]; then # after the last run of a study
  sweep_images
  exit 0
fi
at_exit drop_image
bring_image
