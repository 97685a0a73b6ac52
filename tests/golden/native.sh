#!/usr/bin/env bash
# digits, 2 ranks: 1 node x 2 ranks; engine native, launcher torchrun, scheduler local
# Written by Bareboat 0.1.0, plan sha256:2c90de11cc44. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' one_world output requeue watching world ' start=nodes ranks_per_node=2 world_size=2 run_apart=''
rung=1 requested=(0 0 0 0) run_name=digits--2-ranks

requirements() {
  need '/home/ada/my digits' 'the working directory' 'mkdir -p '"'"'/home/ada/my digits'"'"''
}

job_command() {
  export BAREBOAT_ENV_0=lo BAREBOAT_ENV_1=/home/ada BAREBOAT_ENV_2=C.UTF-8 BAREBOAT_ENV_3=ada \
    BAREBOAT_ENV_4=1 BAREBOAT_ENV_5=/env/bin:/usr/bin BAREBOAT_ENV_6=1 BAREBOAT_ENV_7=Europe/Rome \
    BAREBOAT_ENV_8=ada
  exec env -i '--chdir=/home/ada/my digits' -S \
    '"GLOO_SOCKET_IFNAME=${BAREBOAT_ENV_0}" "HOME=${BAREBOAT_ENV_1}" "LANG=${BAREBOAT_ENV_2'\
'}" "LOGNAME=${BAREBOAT_ENV_3}" "OMP_NUM_THREADS=${BAREBOAT_ENV_4}" "PATH=${BAREBOAT_EN'\
'V_5}" "PYTHONNOUSERSITE=${BAREBOAT_ENV_6}" "TZ=${BAREBOAT_ENV_7}" "USER=${BAREBOAT_ENV'\
'_8}"' ${BAREBOAT_RUN:+BAREBOAT_RUN="$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+BAREBOAT_METER_DIR="$BAREBOAT_METER_DIR"} \
    ${BAREBOAT_GATE:+BAREBOAT_GATE="$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+BAREBOAT_RUN_DIR="$BAREBOAT_RUN_DIR"} /env/bin/python -m torch.distributed.run \
    --standalone --local-addr=127.0.0.1 --nproc-per-node=2 --max-restarts=0 \
    --log-dir="$BAREBOAT_RUN_DIR"/torchrun/0 --no-python /bin/sh -c \
    'log=$BAREBOAT_RUN_DIR/logs/$RANK; "$@" >> "$log.out" 2>> "$log.err"; code=$?; echo "$R'\
'ANK $code" >> "$BAREBOAT_RUN_DIR/exits.$GROUP_RANK"; exit "$code"' rank python digits.py \
    --note 'it'"'"'s $5' ''
}

# Here is the library.

main "$@"
