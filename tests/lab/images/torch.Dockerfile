# The PyTorch image: what a researcher pulls. A plain `torch` would bring gigabytes of CUDA packages.
FROM localhost/lab/python:1
RUN pip install --quiet --no-cache-dir --break-system-packages --root-user-action=ignore torch==2.13.0 numpy
CMD ["python3"]
