FROM rockylinux:9
RUN dnf -y update && dnf -y install epel-release && \
    dnf -y install gcc-c++ hdf5-devel netcdf-devel openmpi-devel
ENV PATH=/usr/lib64/openmpi/bin:$PATH
COPY model /opt/model
RUN cd /opt/model && make FFLAGS="-O3 -march=native"
RUN chmod -R 755 /opt/model
