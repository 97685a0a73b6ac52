# syntax=docker/dockerfile:1
FROM debian:12.7 AS build
RUN <<EOF
set -e
apt-get update
apt-get install -y --no-install-recommends cmake g++ libfftw3-dev libopenmpi-dev ca-certificates curl
curl -fsSLo /tmp/gromacs.tar.gz https://ftp.gromacs.org/gromacs/gromacs-2024.3.tar.gz
echo "bbda056ee59390be7d58d84c13a9ec0d4e3635617adf2eb747034922cba1f029  /tmp/gromacs.tar.gz" | sha256sum -c -
tar -xzf /tmp/gromacs.tar.gz -C /tmp
cmake -S /tmp/gromacs-2024.3 -B /tmp/build -DGMX_MPI=ON -DGMX_SIMD=AVX2_256 -DCMAKE_INSTALL_PREFIX=/opt/gromacs
cmake --build /tmp/build -j --target install
EOF

FROM debian:12.7
RUN <<EOF
apt-get update
apt-get install -y --no-install-recommends libfftw3-single3 openmpi-bin
EOF
COPY --from=build /opt/gromacs /opt/gromacs
ENV PATH=/opt/gromacs/bin:$PATH
