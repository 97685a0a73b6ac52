# shellcheck shell=bash disable=SC2034,SC2154
# The first node: the user's command for the end of the run.
# Expects: $notification, $notification_folder; $BAREBOAT_RUN, $BAREBOAT_CONTROL; at_exit; of a sweep is_last_point.

# Its exit code does not change the run's; it is kept separately.
notify() {
  local run=$BAREBOAT_RUN code state=failed kept=$BAREBOAT_CONTROL top file answer
  read -r code _ 2> /dev/null < "$BAREBOAT_CONTROL/exit_code" || return 0 # requeued: it has not ended
  trap '' TERM INT HUP USR1
  if has sweep; then # for the last point that ends
    top=${BAREBOAT_CONTROL%/points/*} run=${BAREBOAT_RUN%.*}
    is_last_point && mkdir "$top/notified" 2> /dev/null || return 0
    kept=$top code=0
    for file in "$top"/points/*/control/exit_code; do
      read -r answer _ < "$file"
      [ "${answer:-0}" -eq 0 ] || [ "$code" -ne 0 ] || code=$answer
    done
  fi
  case $code in
    0) state=completed ;;
    130 | 143) state=cancelled ;;
  esac
  (
    cd -- "${notification_folder:-$HOME}" || exit 1
    export BAREBOAT_NOTIFY_RUN=$run BAREBOAT_NOTIFY_STATE=$state BAREBOAT_NOTIFY_EXIT_CODE=$code
    export BAREBOAT_NOTIFY_JOB_ID=${BAREBOAT_JOB:-}
    exec timeout -k 2 20 "${notification[@]}"
  ) < /dev/null > "$kept/notification.log" 2>&1
  answer=$?
  printf '%s %(%s)T\n' "$answer" -1 > "$kept/notification"
  [ "$answer" -eq 0 ] || printf 'bareboat: the notification failed with exit code %s: %s\n' \
    "$answer" "$kept/notification.log" >&2
}
