# shellcheck shell=bash disable=SC2034,SC2154
# The first node: the directory of a sweep's point.
# Expects: $BAREBOAT_CONTROL.

# This point's own directory, with its output and its copy of the script.
(umask 077 && mkdir -p "$BAREBOAT_CONTROL") || exit 3
exec >> "${BAREBOAT_CONTROL%/*}/output.log" 2>&1
script=${BAREBOAT_CONTROL%/points/*}/job.sh
[ ! -e "$script" ] || (umask 077 && cp "$script" "$BAREBOAT_CONTROL")
