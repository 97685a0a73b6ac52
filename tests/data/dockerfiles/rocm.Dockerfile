FROM rocm/dev-ubuntu-22.04:6.1
RUN apt update && apt install -y python3-pip rccl && apt clean && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/rocm6.1
RUN git clone https://github.com/ROCm/rocm-examples /opt/rocm-examples
