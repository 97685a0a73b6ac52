# shellcheck shell=bash disable=SC2034,SC2154
# Poll the ranks' transport while the job runs.
# Expects: $fabric_words, $fabric_tellers: the expected number of logs; fabric.sh; fallen.

( # Libraries log it at their start or later. Polls every two seconds until all have, or the job ends.
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
