#!/usr/bin/env bash
# digits: 1 node x 1 ranks; engine native, launcher single, scheduler local
# Written by Bareboat 0.1.0, plan sha256:3c2bc63e7c78. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' names requeue ' start=nodes ranks_per_node=1 world_size=1 run_apart='' rung=1 requested=(0 0 0 0)
run_name=digits

requirements() { need /home/ada/digits 'the working directory' 'mkdir -p /home/ada/digits'; }

rank_names() {
  [ -t 1 ] || unset TERM COLORTERM # bash sets TERM, also without a terminal
}

pass_variable() { passed+=("$name"="$value"); } # $name with its $value

job_command() {
  pass_variables TERM COLORTERM
  export BAREBOAT_ENV_0=/home/ada BAREBOAT_ENV_1=C.UTF-8 BAREBOAT_ENV_2=ada BAREBOAT_ENV_3=1 \
    BAREBOAT_ENV_4=/env/bin:/usr/bin BAREBOAT_ENV_5=1 BAREBOAT_ENV_6=Europe/Rome BAREBOAT_ENV_7=ada
  exec env -i --chdir=/home/ada/digits -S \
    '"HOME=${BAREBOAT_ENV_0}" "LANG=${BAREBOAT_ENV_1}" "LOGNAME=${BAREBOAT_ENV_2}" "OMP_NUM'\
'_THREADS=${BAREBOAT_ENV_3}" "PATH=${BAREBOAT_ENV_4}" "PYTHONNOUSERSITE=${BAREBOAT_ENV_'\
'5}" "TZ=${BAREBOAT_ENV_6}" "USER=${BAREBOAT_ENV_7}"' ${BAREBOAT_RUN:+BAREBOAT_RUN="$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+BAREBOAT_METER_DIR="$BAREBOAT_METER_DIR"} \
    ${BAREBOAT_GATE:+BAREBOAT_GATE="$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+BAREBOAT_RUN_DIR="$BAREBOAT_RUN_DIR"} ${passed[@]+"${passed[@]}"} python digits.py \
    --epochs 40
}

# Here is the library.

main "$@"
