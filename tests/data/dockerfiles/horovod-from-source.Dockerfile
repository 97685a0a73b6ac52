ARG CUDA=12.2.2
FROM nvidia/cuda:${CUDA}-devel-ubuntu22.04
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y build-essential wget python3-dev python3-pip
# OpenMPI
RUN mkdir /tmp/openmpi && \
    cd /tmp/openmpi && \
    wget https://download.open-mpi.org/release/open-mpi/v4.0/openmpi-4.0.7.tar.gz && \
    tar zxf openmpi-4.0.7.tar.gz && \
    cd openmpi-4.0.7 && \
    ./configure --enable-orterun-prefix-by-default && \
    make -j $(nproc) all && \
    make install && \
    ldconfig && \
    rm -rf /tmp/openmpi
RUN pip3 install torch==2.1.0 --index-url https://download.pytorch.org/whl/cu121
RUN HOROVOD_WITH_PYTORCH=1 pip3 install horovod==0.28.1
RUN rm -rf /var/lib/apt/lists/*
