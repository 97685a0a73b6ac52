#!/usr/bin/env bash
#$ -N digits
#$ -S /bin/bash
#$ -j y
#$ -cwd
#$ -pe mpi8 16
#$ -l h_rt=5400
#$ -q long
#$ -r y
# ifca-20261123-120000.0: 2 nodes; 3 runs of each arm: bare, bubblewrap, udocker
# Written by Bareboat 0.1.0, for the arms of a study. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features='  ' study=/scratch/ada/store/runs/ifca-20261123-120000/points/0 allocation=1 time_limit_s=5400
metric_files=('/home/ada/digits/out put.json') BAREBOAT_NODES=2 BAREBOAT_JOB="${JOB_ID:-$$}"
BAREBOAT_RUN=ifca-20261123-120000.0
BAREBOAT_CONTROL=/scratch/ada/store/runs/ifca-20261123-120000/points/0/control
BAREBOAT_RUN_DIR=/scratch/ada/store/runs/ifca-20261123-120000/points/0/ranks

# A run, and the numbers of its arms in their order.
schedule=('0000 1 0 2' '0001 0 2 1' '0002 2 0 1')

. /scratch/ada/store/runs/ifca-20261123-120000/points/0/control/lib-DIGEST.sh || exit 3
main "$@"
