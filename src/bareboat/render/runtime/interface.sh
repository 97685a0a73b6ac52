# shellcheck shell=bash disable=SC2034,SC2154
# Find the network interface that leads to the first node.
# Expects: $BAREBOAT_MASTER.

# The network interface that leads to the first node: the only one with the longest route there, read from the
# kernel without a program. If there are several, `ip` decides; without it the libraries choose.
interface_by_routes() {
  local address device destination flags mask longest=-1
  [[ $BAREBOAT_MASTER =~ ^([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)$ ]] || return 1
  set -- "${BASH_REMATCH[@]}" # the kernel writes the last byte first
  address=$(($5 << 24 | $4 << 16 | $3 << 8 | $2))
  while read -r device destination _ flags _ _ _ mask _; do
    [ "$flags" != Flags ] || continue
    (((16#$flags & 0x201) == 1)) || continue # up, and not a reject route
    (((address & 16#$mask) == 16#$destination && 16#$mask >= longest)) || continue
    if ((16#$mask > longest)); then
      longest=$((16#$mask)) BAREBOAT_INTERFACE=$device
    elif [ "$device" != "$BAREBOAT_INTERFACE" ]; then
      BAREBOAT_INTERFACE=
    fi
  done 2> /dev/null < /proc/net/route
}

BAREBOAT_INTERFACE=
interface_by_routes
if [ -z "$BAREBOAT_INTERFACE" ] && command -v ip > /dev/null; then
  BAREBOAT_INTERFACE=$(ip -o -4 address show to "$BAREBOAT_MASTER" | awk '{ print $2; exit }')
  [ -n "$BAREBOAT_INTERFACE" ] ||
    BAREBOAT_INTERFACE=$(ip -o route get "$BAREBOAT_MASTER" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
fi
