#!/usr/bin/env bash
#SBATCH --job-name=digits
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --time=01:30:00
#SBATCH --partition=long
#SBATCH --requeue
#SBATCH --open-mode=append
# ifca-20261123-120000.0: 2 nodes; 3 runs of each arm: bare, bubblewrap, udocker
# Written by Bareboat 0.1.0, for the arms of a study. It needs bash, but no Bareboat.
set -u
unset BAREBOAT_RUN # the mark of the run's processes; this shell gets it as an argument

features='  ' study=/scratch/ada/store/runs/ifca-20261123-120000/points/0 allocation=1 time_limit_s=5400
metric_files=('/home/ada/digits/out put.json') BAREBOAT_NODES=2 BAREBOAT_JOB="${SLURM_JOB_ID:-$$}"
BAREBOAT_RUN=8c7b0d9a41e2f356-ifca-20261123-120000.0
BAREBOAT_CONTROL=/scratch/ada/store/runs/ifca-20261123-120000/points/0/control
BAREBOAT_RUN_DIR=/scratch/ada/store/runs/ifca-20261123-120000/points/0/ranks

# A run, and the numbers of its arms in their order.
schedule=('0000 1 0 2' '0001 0 2 1' '0002 2 0 1')

. /scratch/ada/store/runs/ifca-20261123-120000/points/0/control/lib-DIGEST.sh || exit 3
main "$@"
