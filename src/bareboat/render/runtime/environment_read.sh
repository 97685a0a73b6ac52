# shellcheck shell=bash disable=SC2034,SC2154
# A node that was reached without the job's environment (ssh does not pass it; other tools do).
# Expects: $environment_from, $BAREBOAT_NODE; hand_on.sh on the first node.

# If the job's environment is missing, the first node sends these variables by a pipe.
for name in "${environment_from[@]}"; do
  if [ "$BAREBOAT_NODE" -eq 0 ] || [ -n "${!name+set}" ]; then continue; fi
  while IFS= read -r -t 30 -d '' name && [ -n "$name" ] && IFS= read -r -t 30 -d '' value; do
    export "$name=$value"
  done
  break
done
[ "$BAREBOAT_NODE" -eq 0 ] || exec < /dev/null
