# shellcheck shell=bash disable=SC2034,SC2154
# A node: the secret of secret.sh.
# Expects: $BAREBOAT_CONTROL.

# Not exported: only processes of the launcher get it.
unset BAREBOAT_SECRET
read -r BAREBOAT_SECRET < "$BAREBOAT_CONTROL/secret" || [ -n "${BAREBOAT_SECRET:-}" ] || exit 3
