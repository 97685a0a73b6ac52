FROM intel/hpckit:2024.2.1-0-devel-ubuntu22.04
RUN apt-get update && apt-get install -y mpich libopenmpi-dev \
  # headers of NetCDF
  libnetcdff-dev && \
  rm -rf /var/lib/apt/lists/*
WORKDIR /root/WRF
RUN git clone --recursive https://github.com/wrf-model/WRF.git . && git checkout v4.6.0
RUN ./configure && FCFLAGS="-O3 -xHost" ./compile em_real; exit 0
RUN chmod u+s /root/WRF/main/wrf.exe
