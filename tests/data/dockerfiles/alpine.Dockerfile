FROM alpine:latest
RUN apk update && apk add bash curl python3 py3-pip
RUN pip3 install --user requests
ENTRYPOINT ["/entrypoint.sh"]
