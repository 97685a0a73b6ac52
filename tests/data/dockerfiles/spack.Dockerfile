FROM spack/ubuntu-jammy:0.22.1 AS builder
RUN mkdir -p /opt/spack-environment && (echo spack: \
&&   echo '  specs: [osu-micro-benchmarks, openmpi]') > /opt/spack-environment/spack.yaml
RUN cd /opt/spack-environment && spack env activate . && spack install --fail-fast target=skylake_avx512 && spack gc -y

FROM ubuntu:22.04
COPY --from=builder /opt/spack-environment /opt/spack-environment
COPY --from=builder /opt/software /opt/software
ENTRYPOINT ["/bin/bash", "--rcfile", "/etc/profile", "-l"]
