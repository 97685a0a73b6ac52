# shellcheck shell=bash disable=SC2034,SC2154
# Before the ranks are started: a directory for the nodes' observations.
# Expects: $BAREBOAT_CONTROL.

rm -rf "$BAREBOAT_CONTROL/world" # of an earlier start
mkdir "$BAREBOAT_CONTROL/world" || exit 3
