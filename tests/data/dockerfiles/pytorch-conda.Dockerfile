FROM pytorch/pytorch:2.4.1-cuda12.4-cudnn9-runtime
RUN apt-get update && apt-get install -y \
    git \
    vim \
    libgl1
RUN conda install -y -c conda-forge scikit-learn pandas matplotlib
RUN pip install transformers accelerate datasets
WORKDIR /workspace
COPY . /workspace
CMD ["bash"]
