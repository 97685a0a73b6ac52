# A researcher's own image on top of the PyTorch image: a few small files.
FROM localhost/lab/torch:1
RUN mkdir -p /opt/app && for i in 1 2 3 4 5 6 7 8; do echo "print($i)" > /opt/app/step$i.py; done
WORKDIR /opt/app
CMD ["python3", "step1.py"]
