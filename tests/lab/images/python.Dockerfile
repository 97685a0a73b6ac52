# What other images share: Debian 12 with Python.
FROM localhost/lab/base:1
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends python3 python3-pip libgomp1 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
