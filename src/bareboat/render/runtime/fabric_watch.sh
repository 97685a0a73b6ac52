# shellcheck shell=bash disable=SC2034,SC2154
# Look which way the ranks take while the job runs.
# Expects: $fabric_words, $fabric_tellers: how many tell; fabric.sh; fallen.

( # They say it when they begin, or later; this look every two seconds ends when all have, or with the job.
  while sleep 2 > /dev/null 2>&1; do
    kill -0 "$$" 2> /dev/null || exit
    case $(fabric_way "${fabric_words[@]}") in
      sockets)
        fallen
        exit
        ;;
      fabric)
        [ "$(saying "$by_fabric" "${fabric_words[@]}" | wc -l)" -lt "$fabric_tellers" ] || exit
        ;;
    esac
  done
) < /dev/null &
fabric_watch=$!
