# shellcheck shell=bash disable=SC2034,SC2154
# A node's part starts ranks, and uses the image as long as it lives.
# Expects: image.sh, at_exit.sh.

at_exit drop_image
bring_image
