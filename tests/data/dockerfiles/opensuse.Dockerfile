FROM opensuse/leap:15.6
RUN zypper --non-interactive install gcc-fortran make && zypper clean -a
COPY src /opt/src
RUN make -C /opt/src install
