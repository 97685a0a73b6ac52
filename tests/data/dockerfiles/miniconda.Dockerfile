FROM ubuntu:22.04
RUN apt-get update && apt-get install -y curl bzip2
RUN curl -LO https://repo.anaconda.com/miniconda/Miniconda3-latest-Linux-x86_64.sh \
    && bash Miniconda3-latest-Linux-x86_64.sh -b -p /root/miniconda3 \
    && rm Miniconda3-latest-Linux-x86_64.sh
ENV PATH=/root/miniconda3/bin:$PATH
COPY environment.yml /tmp/environment.yml
RUN conda env create -f /tmp/environment.yml
SHELL ["conda", "run", "-n", "work", "/bin/bash", "-c"]
ENTRYPOINT ["conda", "run", "-n", "work", "python", "main.py"]
