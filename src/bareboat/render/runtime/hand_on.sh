# shellcheck shell=bash disable=SC2034,SC2154
# The first node: environment variables for nodes that are reached without them.
# Expects: $environment_from.

hand_on() { # names and values for another node; an empty name marks the end
  local name
  for name in "${environment_from[@]}" ''; do
    printf '%s\0%s\0' "$name" "${name:+${!name}}"
  done 2> /dev/null
}
