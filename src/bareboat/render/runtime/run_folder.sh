# shellcheck shell=bash disable=SC2034,SC2154
# The run's directories on this machine.
# Expects: nothing; $BAREBOAT_CONTROL and $BAREBOAT_RUN_DIR where Bareboat keeps the run; at_exit.sh.

# The run's files: this script writes to BAREBOAT_CONTROL, which no container sees; the ranks to
# BAREBOAT_RUN_DIR.
if [ -z "${BAREBOAT_CONTROL:-}" ]; then
  BAREBOAT_CONTROL=$(mktemp -d "${TMPDIR:-/tmp}/bareboat-run.XXXXXX") || exit 3
  remove_run_folder() { rm -rf "$BAREBOAT_CONTROL"; }
  at_exit remove_run_folder
  BAREBOAT_RUN_DIR=$BAREBOAT_CONTROL/ranks
  mkdir "$BAREBOAT_RUN_DIR" || exit 3
fi
export -n BAREBOAT_CONTROL
