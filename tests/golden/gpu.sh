#!/usr/bin/env bash
# digits: 1 node x 1 ranks; engine bubblewrap, launcher single, scheduler local
# Written by Fairlead 0.1.0, plan sha256:06a2df5e8ea1.
# It needs bash and what is named under "What must be there", but no Fairlead.
set -u

# Every process of this run carries this mark in its environment, whatever session or container it moves
# to. This shell itself does not: it got the mark as an argument, and does not export it.
unset FAIRLEAD_RUN

FAIRLEAD_RUN="${1:-digits-$$}"
HERE=

run_pids() { # the run's processes on this node
  grep -lszxF "FAIRLEAD_RUN=$FAIRLEAD_RUN" /proc/[0-9]*/environ | tr -dc '0-9\n'
}

end_run() { # ask every process to end, wait up to 10 s, then make them
  local signal pids deadline
  for signal in TERM KILL; do
    pids=$(run_pids)
    [ -n "$pids" ] || return
    # shellcheck disable=SC2086
    kill -s "$signal" $pids 2>/dev/null
    deadline=$((SECONDS + 10))
    while [ "$SECONDS" -lt "$deadline" ]; do
      [ -n "$(run_pids)" ] || return
      sleep 0.1
    done
  done
}

stop() { # $1: exit code
  trap '' TERM INT HUP
  end_run
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
trap 'stop 129' HUP

need() { # $1: path, $2: what it is, $3: what to do
  [ -e "$1" ] && return
  printf 'fairlead: %s is not there%s: %s\n  try: %s\n' "$2" "$HERE" "$1" "$3" >&2
  exit 3
}

# What must be there.
need /scratch/ada/fairlead/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 'a layer of the image' 'fairlead capture --fresh'
need /opt/bwrap 'the engine bubblewrap' 'fairlead doctor'
need /home/ada/digits 'the working folder' 'mkdir -p /home/ada/digits'
need /scratch/ada/fairlead/drivers/nvidia 'a folder of the GPU driver' 'fairlead plan JOB  # on this machine'
need /usr/lib64 'a folder of the GPU driver' 'fairlead plan JOB  # on this machine'
need /usr/bin 'a folder of the GPU driver' 'fairlead plan JOB  # on this machine'

[ -e /dev/fd/0 ] || exec </dev/null
# The job: in the background, because bash runs a trap only between commands or during `wait`. It
# keeps the standard input, and the signals that bash takes from what it puts there.
(
  trap - INT QUIT
  passed=()
  for name in CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES GPU_DEVICE_ORDINAL SLURM_JOB_GPUS SLURM_STEP_GPUS CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; do
    [ -n "${!name+set}" ] || continue
    value=${!name}
    passed+=(--setenv "$name" "$value")
  done
  exec /opt/bwrap \
  --bind /scratch/ada/fairlead/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa / \
  --dev-bind /dev /dev \
  --bind /proc /proc \
  --ro-bind /sys /sys \
  --tmpfs /tmp \
  --tmpfs /var/tmp \
  --tmpfs /run \
  --tmpfs /home/ada \
  --ro-bind-try /etc/resolv.conf /etc/resolv.conf \
  --ro-bind-try /etc/hosts /etc/hosts \
  --dir /home/ada \
  --bind /home/ada/digits /home/ada/digits \
  --ro-bind '/scratch/ada/fairlead/flat/sha256/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/home/ada/my digits/.venv' '/home/ada/my digits/.venv' \
  --ro-bind /scratch/ada/fairlead/drivers/nvidia /run/fairlead/driver \
  --ro-bind /usr/lib64 /run/fairlead/host/0 \
  --ro-bind /usr/bin /run/fairlead/host/1 \
  ${FAIRLEAD_METER_DIR:+--bind "$FAIRLEAD_METER_DIR" /run/fairlead/FAIRLEAD_METER_DIR} \
  ${FAIRLEAD_RUN_DIR:+--bind "$FAIRLEAD_RUN_DIR" /run/fairlead/FAIRLEAD_RUN_DIR} \
  --remount-ro / \
  --clearenv \
  --setenv FAIRLEAD_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
  --setenv HOME /home/ada \
  --setenv LANG C.UTF-8 \
  --setenv LD_LIBRARY_PATH /run/fairlead/driver/lib \
  --setenv LOGNAME ada \
  --setenv OMP_NUM_THREADS 1 \
  --setenv PATH /run/fairlead/driver/bin:/env/bin:/usr/bin \
  --setenv PYTHONNOUSERSITE 1 \
  --setenv TZ Europe/Rome \
  --setenv USER ada \
  ${FAIRLEAD_RUN:+--setenv FAIRLEAD_RUN "$FAIRLEAD_RUN"} \
  ${FAIRLEAD_METER_DIR:+--setenv FAIRLEAD_METER_DIR /run/fairlead/FAIRLEAD_METER_DIR} \
  ${FAIRLEAD_GATE:+--setenv FAIRLEAD_GATE "$FAIRLEAD_GATE"} \
  ${FAIRLEAD_RUN_DIR:+--setenv FAIRLEAD_RUN_DIR /run/fairlead/FAIRLEAD_RUN_DIR} \
  ${passed[@]+"${passed[@]}"} \
  --chdir /home/ada/digits \
  --die-with-parent \
  -- \
  python train.py
) <&0 &
child=$!
wait "$child"
code=$?

[ "$code" -eq 0 ] || end_run
exit "$code"
