# shellcheck shell=bash disable=SC2034,SC2154
# The first lines of every script.
# Expects: nothing.

set -u

# Every process of this run carries this mark in its environment, even in another session or container. This
# shell itself does not: it got the mark as an argument, and does not export it.
unset BAREBOAT_RUN
