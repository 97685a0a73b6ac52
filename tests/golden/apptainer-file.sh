#!/usr/bin/env bash
# digits, 2 ranks: 1 node x 2 ranks; engine apptainer, launcher torchrun, scheduler local
# Written by Bareboat 0.1.0, plan sha256:e4b5686f4be6. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded one_world output requeue sealed watching world ' start=nodes ranks_per_node=2
world_size=2 run_apart=user rung=1 requested=(0 0 0 0) run_name=digits--2-ranks

requirements() {
  need /scratch/ada/bareboat/packed/image.sif 'the packed image' \
    'bareboat plan --prepare --form file …   # packs the image'
  need /opt/bin/apptainer 'the engine apptainer' 'bareboat doctor'
  need '/home/ada/my digits' 'the working directory' 'mkdir -p '"'"'/home/ada/my digits'"'"''
  need /data/digits 'the source of a mount' 'correct the mounts'
  need /scratch/ada/out 'the source of a mount' 'correct the mounts'
  need /scratch/ada/store/programs/2262571a73a496c1 'the seccomp filter' 'bareboat plan JOB'
}

seal_environment() {
  seal sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa lo /home/ada C.UTF-8 ada 1 \
    /env/bin:/usr/bin 1 Europe/Rome ada
}

job_command() {
  exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /usr/bin/env -i PATH="$PATH" \
    APPTAINER_CONFIGDIR=/proc/self/bareboat SINGULARITY_CONFIGDIR=/proc/self/bareboat bash -c \
    'exec {file}<<<"$0"; program=$1; shift; exec "$program" --silent --nocolor --config "/d'\
'ev/fd/$file" "$@"' 'sessiondir max size = 131072
enable overlay = no
' /opt/bin/apptainer exec --userns --cleanenv --no-home --no-mount=home,cwd,tmp,hostfs,bind-paths \
    --scratch=/.singularity.d/env --scratch=/home/ada '--scratch=/home/ada/my digits' \
    '--scratch=/home/ada/my digits/.venv' --scratch=/run --scratch=/tmp --scratch=/var/tmp \
    --mount=type=bind,source=/usr/bin/env,destination=/.singularity.d/bareboat/env,ro \
    --mount=type=bind,source=/lib64/ld.so,destination=/.singularity.d/bareboat/ld.so,ro \
    --mount=type=bind,source=/usr/bin/bash,destination=/.singularity.d/bareboat/bash,ro \
    --mount=type=bind,source=/scratch/ada/store/programs/2262571a73a496c1/terminal.run,des\
tination=/.singularity.d/bareboat/filter,ro --mount=type=bind,source=/etc/hosts,destination=/etc/hosts,ro \
    --mount=type=bind,source=/data/digits,destination=/data,ro \
    '--mount=type=bind,source=/home/ada/my digits,destination=/home/ada/my digits' \
    --mount=type=bind,source=/scratch/ada/bareboat/packed/image.sif,destination=/home/ada/\
'my digits/.venv,image-src=/home/ada/my digits/.venv,ro' \
    '--mount=type=bind,source=/scratch/ada/out,destination=/home/ada/my digits/out' ${BAREBOAT_METER_DIR:+\
'--mount=type=bind,"source='"$BAREBOAT_METER_DIR"'","destination='"$BAREBOAT_METER_DIR"\
'"'} ${BAREBOAT_RUN_DIR:+\
'--mount=type=bind,"source='"$BAREBOAT_RUN_DIR"'","destination='"$BAREBOAT_RUN_DIR"'"'} \
    '--pwd=/home/ada/my digits' /scratch/ada/bareboat/packed/image.sif /.singularity.d/bareboat/filter \
    /.singularity.d/bareboat/bash -c \
    'mapfile -d "" -t values <&"$0"; at=$0; exec {at}<&-; for number in "${!values[@]}"; do'\
' export "BAREBOAT_ENV_$number=${values[number]}"; done; exec "$@"' "$sealed" \
    /.singularity.d/bareboat/ld.so --library-path /.singularity.d/bareboat /.singularity.d/bareboat/env -i \
    -S '"BAREBOAT_IMAGE=${BAREBOAT_ENV_0}" "GLOO_SOCKET_IFNAME=${BAREBOAT_ENV_1}" "HOME=${BARE'\
'BOAT_ENV_2}" "LANG=${BAREBOAT_ENV_3}" "LOGNAME=${BAREBOAT_ENV_4}" "OMP_NUM_THREADS=${B'\
'AREBOAT_ENV_5}" "PATH=${BAREBOAT_ENV_6}" "PYTHONNOUSERSITE=${BAREBOAT_ENV_7}" "TZ=${BA'\
'REBOAT_ENV_8}" "USER=${BAREBOAT_ENV_9}"' ${BAREBOAT_RUN:+BAREBOAT_RUN="$BAREBOAT_RUN"} \
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
