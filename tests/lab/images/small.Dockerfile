# Many small files: what conda environments and unpacked data sets look like.
FROM localhost/lab/python:1
RUN python3 /recipes/small_files.py /opt/small
