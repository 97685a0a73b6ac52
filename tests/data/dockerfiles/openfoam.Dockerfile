FROM ubuntu:20.04
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get upgrade -y && apt-get install -y wget software-properties-common
RUN sh -c "wget -O - https://dl.openfoam.org/gpg.key > /etc/apt/trusted.gpg.d/openfoam.asc" && \
    add-apt-repository http://dl.openfoam.org/ubuntu && \
    apt-get update && apt-get install -y openfoam11
RUN useradd --user-group --create-home --shell /bin/bash foam
USER foam
WORKDIR /home/foam
RUN echo "source /opt/openfoam11/etc/bashrc" >> ~/.bashrc
