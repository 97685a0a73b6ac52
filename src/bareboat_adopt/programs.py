"""Programs that a script calls beside its own: what they are for. Pure."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: They print, check or wait.
PRINTS = _names("""
    : (( [ [[ alias awk basename bc bjobs break cat checkjob clear complete continue crc-job-stats
    date df dirname du echo env expr free getopts git-version grep groups head hostname id jobs ldd
    let local locale ls lsb_release lscpu lspci my-job-stats nproc nvidia-smi printenv printf pwd
    qstat return rocm-smi rocminfo sacct scontrol sed seff set shift shopt sinfo sleep sort squeue
    sstat stat stty tail test times top tput trap true type ulimit umask unalias uname uptime wait
    wc which whoami
""")
#: They prepare or tidy files, and build.
PREPARES = _names("""
    apt apt-get aws chgrp chmod chown cmake conda configure cp curl dos2unix find fusermount g++ gcc
    gfortran git gsutil gunzip gzip icc ifort install jq kill killall lfs ln logger mail make mamba
    mapfile md5sum micromamba mkdir mktemp mpicc mpicxx mpif90 mpifort mv nvcc
    nvidia-cuda-mps-control pip pip2 pip3 pkill poetry popd pushd qsub read readarray rename rm
    rmdir rsync sacctmgr sbatch sbcast scancel scp setfacl sha256sum spack split squashfuse ssh
    ssh-keygen sync tar tee touch truncate unzip uv wget yum zip
""")
#: Variables that launchers set for each rank.
OF_RANKS = _names("""
    LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT NODE_RANK OMP_NUM_THREADS RANK WORLD_SIZE
""")
#: Variables whose directories differ in a container.
SEARCHED = _names("""
    CPATH LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH MANPATH MODULEPATH PATH PKG_CONFIG_PATH
""")
#: Verbs of `ml` that load no module.
OF_MODULES = _names("""
    av avail list purge reset restore show spider swap switch unload unuse use whatis
""")
