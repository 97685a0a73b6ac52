# shellcheck shell=bash disable=SC2034,SC2154
# Before the ranks are started, once.
# Expects: $starts on a cluster; watchdog.sh.

rm -f "$silence"/{asked,verdict,quiet.*,stacks.*,stopped.*,over.*}
[ ! -d "$stacks" ] || mv "$stacks" "$stacks.$((${starts:-2} - 1))" # of an earlier start
mkdir -p "$silence" "$BAREBOAT_RUN_DIR/progress" || exit 3
