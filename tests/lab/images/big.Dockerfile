# Few big files: model weights and binary data sets.
FROM localhost/lab/python:1
RUN python3 /recipes/big_files.py /opt/big
