#!/usr/bin/env bash
#PBS -N digits
#PBS -j oe
#PBS -l nodes=2:ppn=8
#PBS -l walltime=01:30:00
#PBS -q long
#PBS -r y
# ifca-20261123-120000.0: 2 nodes; 3 runs of each arm: bare, bubblewrap, udocker
# Written by Bareboat 0.1.0, for the arms of a study. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features='  ' study=/scratch/ada/store/runs/ifca-20261123-120000/points/0 allocation=1 time_limit_s=5400
metric_files=('/home/ada/digits/out put.json') BAREBOAT_NODES=2
BAREBOAT_JOB="${PBS_JOBID:-${SLURM_JOB_ID:-$$}}" BAREBOAT_RUN=ifca-20261123-120000.0
BAREBOAT_CONTROL=/scratch/ada/store/runs/ifca-20261123-120000/points/0/control
BAREBOAT_RUN_DIR=/scratch/ada/store/runs/ifca-20261123-120000/points/0/ranks

# A run, and the numbers of its arms in their order.
schedule=('0000 1 0 2' '0001 0 2 1' '0002 2 0 1')

. /scratch/ada/store/runs/ifca-20261123-120000/points/0/control/lib-DIGEST.sh || exit 3
main "$@"
