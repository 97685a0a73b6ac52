# shellcheck shell=bash disable=SC2034,SC2154
# The beginning of a node's part.
# Expects: $BAREBOAT_CONTROL, $BAREBOAT_HOST; at_exit.sh.

leave_node() { status=$? && echo "$status" >> "$BAREBOAT_CONTROL/ends.$BAREBOAT_HOST"; }
at_exit leave_node
