# shellcheck shell=bash disable=SC2034,SC2154
# The first node: a secret for all nodes.
# Expects: $BAREBOAT_CONTROL; first.sh.

# The run's processes on different nodes authenticate each other with it.
(
  umask 077
  rm -f "$BAREBOAT_CONTROL/secret"
  set -C
  head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$BAREBOAT_CONTROL/secret"
) || finish 3
