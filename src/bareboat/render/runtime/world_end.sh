# shellcheck shell=bash disable=SC2034,SC2154
# The first part, when the ranks have ended: were they one world?
# Expects: $code, $BAREBOAT_CONTROL; world.sh.

if [ "$code" -eq 0 ] && [ ! -e "$BAREBOAT_CONTROL/world/one" ]; then
  worlds=$(world_groups)
  case $worlds in
    '') ;;
    one) rm -f "$BAREBOAT_CONTROL/world/apart" ;;
    *)
      printf '%s\n' "$worlds" > "$BAREBOAT_CONTROL/world/apart"
      printf 'bareboat: WARNING: %s\n' "$worlds" >&2
      printf '  try: compare the world size that the program prints\n' >&2
      ;;
  esac
fi
