FROM tensorflow/tensorflow:latest-gpu
RUN apt-get update -qq && \
    apt-get install -y --no-install-recommends openmpi-bin libopenmpi-dev openssh-client cmake && \
    rm -rf /var/lib/apt/lists/*
RUN HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_WITH_TENSORFLOW=1 \
    pip install --no-cache-dir horovod
RUN mkdir -p /var/run/sshd && echo "StrictHostKeyChecking no" >> /etc/ssh/ssh_config
