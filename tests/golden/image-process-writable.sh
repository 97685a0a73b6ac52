#!/usr/bin/env bash
# digits: 1 node x 1 ranks; engine bubblewrap, launcher single, scheduler local
# Written by Bareboat 0.1.0, plan sha256:62446f847c9d. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features=' discarded names requeue sealed ' start=nodes ranks_per_node=1 world_size=1 run_apart=user rung=1
requested=(0 0 0 0) run_name=digits

requirements() {
  need /scratch/ada/bareboat/layers/sha256/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\
bbbbbbbbbbbbbb/tree 'a layer of the image' 'bareboat image pull --fresh docker.io/library/server:1'
  need /scratch/ada/bareboat/layers/sha256/cccccccccccccccccccccccccccccccccccccccccccccccccc\
cccccccccccccc/tree 'a layer of the image' 'bareboat image pull --fresh docker.io/library/server:1'
  need /opt/bwrap 'the engine bubblewrap' 'bareboat doctor'
  need /scratch/ada/store/programs/2262571a73a496c1 'the seccomp filter' 'bareboat plan JOB'
}

rank_names() {
  [ -t 1 ] || unset TERM COLORTERM # bash sets TERM, also without a terminal
}

seal_environment() {
  seal --setenv BAREBOAT_IMAGE sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
    --setenv HOME /home/ada --setenv LANG C.UTF-8 --setenv LOGNAME ada --setenv OMP_NUM_THREADS 1 \
    --setenv PATH /env/bin:/usr/bin --setenv PYTHONNOUSERSITE 1 --setenv TZ Europe/Rome --setenv USER ada
}

pass_variable() { passed+=(--setenv "$name" "$value"); } # $name with its $value

job_command() {
  pass_variables TERM COLORTERM
  BAREBOAT_SCRIPT=$BAREBOAT_RUN exec /scratch/ada/store/programs/2262571a73a496c1/keyring.run /opt/bwrap \
    --seccomp 197 197< /scratch/ada/store/programs/2262571a73a496c1/full.bpf \
    --overlay-src /scratch/ada/bareboat/layers/sha256/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\
bbbbbbbbbbbbbb/tree \
    --overlay-src /scratch/ada/bareboat/layers/sha256/cccccccccccccccccccccccccccccccccccccccccccccccccc\
cccccccccccccc/tree --tmp-overlay / --dev-bind /dev /dev --bind /proc /proc --ro-bind /sys /sys \
    --ro-bind-try /etc/resolv.conf /etc/resolv.conf --ro-bind-try /etc/hosts /etc/hosts --dir /home/ada \
    ${BAREBOAT_METER_DIR:+--bind "$BAREBOAT_METER_DIR" /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_RUN_DIR:+--bind "$BAREBOAT_RUN_DIR" /run/bareboat/BAREBOAT_RUN_DIR} --dir /srv/app \
    --clearenv --args "$sealed" ${BAREBOAT_RUN:+--setenv BAREBOAT_RUN "$BAREBOAT_RUN"} \
    ${BAREBOAT_METER_DIR:+--setenv BAREBOAT_METER_DIR /run/bareboat/BAREBOAT_METER_DIR} \
    ${BAREBOAT_GATE:+--setenv BAREBOAT_GATE "$BAREBOAT_GATE"} \
    ${BAREBOAT_RUN_DIR:+--setenv BAREBOAT_RUN_DIR /run/bareboat/BAREBOAT_RUN_DIR} \
    ${passed[@]+"${passed[@]}"} --chdir /srv/app --die-with-parent -- /entry --say serve 'a b'
}

# Here is the library.

main "$@"
