"""Programs that a script calls beside its own: what they are for."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: They only print.
PRINTS = _names("""
    : date df echo env free groups hostname ibv_devinfo id lscpu my-job-stats nproc nvidia-smi printenv printf
    pwd seff sinfo squeue true type uname uptime which whoami
""")
#: They prepare or tidy, or change the shell: no program of the job, and no key of a job file.
OTHERS = _names("""
    (( [ [[ alias apt apt-get awk aws basename bc break cat chgrp chmod chown clear cmake cmp complete
    continue cp crc-job-stats curl cut deactivate declare diff dirname du eval exec exit expr false find
    fusermount g++ gcc getopts gfortran git grep gunzip gzip hash head huggingface-cli jobs jq kill
    killall ldd let lfs ln local locale ls mail make mapfile md5sum mkdir mktemp mpicc mpicxx mpif90 mv
    nvcc pip pip2 pip3 pkill poetry popd pushd qstat qsub read readarray readlink readonly realpath rename
    return rm rmdir rsync sacct sacctmgr sbatch sbcast scancel scontrol scp sed seq set sha256sum shift
    shopt shuf sleep sort split squashfuse ssh sstat stat stty sync tail tar tee test time times top touch
    tput tr trap truncate typeset ulimit umask unalias uniq unset unzip uv wait wandb wc wget xargs yum
    zip
""")
#: Variables that launchers set for each rank.
OF_RANKS = _names("""
    LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT NODE_RANK OMP_NUM_THREADS RANK WORLD_SIZE
""")
#: Variables whose directories differ in a container.
SEARCHED = _names("""
    CPATH LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH MANPATH MODULEPATH PATH PKG_CONFIG_PATH
""")
