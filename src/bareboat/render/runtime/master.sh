# shellcheck shell=bash disable=SC2034,SC2154
# The first node: the list of nodes and its own address.
# Expects: $BAREBOAT_NODES, $BAREBOAT_CONTROL; first.sh, and hosts of the scheduler.

mapfile -t hosts < <(hosts)
if [ "${#hosts[@]}" -ne "$BAREBOAT_NODES" ]; then
  printf 'bareboat: the job requires %s nodes but has: %s\n' "$BAREBOAT_NODES" "${hosts[*]}" >&2
  finish 3
fi
printf '%s\n' "${hosts[@]}" > "$BAREBOAT_CONTROL/hosts"
# Ranks connect to the first node by its address: names may not resolve in an image.
BAREBOAT_MASTER=${hosts[0]}
while read -r address _; do
  if [[ $address != 127.* ]]; then
    BAREBOAT_MASTER=$address
    break
  fi
done < <(getent ahostsv4 "${hosts[0]}")
