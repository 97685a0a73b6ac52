# shellcheck shell=bash disable=SC2034,SC2154
# Check the environment variables that are passed on by name: no file contains their values.
# Expects: $environment_from, $HERE.

# Environment variables that are passed on by name (environment_from).
for name in "${environment_from[@]}"; do
  [ -n "${!name+set}" ] && continue
  printf 'bareboat: the environment variable %s is not set%s\n  try: %s\n' "$name" "$HERE" \
    "export $name before you run or submit the job" >&2
  exit 3
done
