# Debian 12, minimal. base.tar is what mmdebstrap makes (bench/exhibits.py).
FROM scratch
ADD base.tar /
CMD ["/bin/sh"]
