FROM jupyter/base-notebook:python-3.11
ARG GITHUB_TOKEN
ENV AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYzzzzzzzzzzzz
COPY .aws/credentials /home/jovyan/.aws/credentials
COPY id_rsa /home/jovyan/.ssh/id_rsa
RUN pip install --no-cache-dir git+https://user:hunter2000@git.example.org/group/private.git
RUN git clone https://${GITHUB_TOKEN}@github.com/example/private.git /tmp/private && pip install --no-cache-dir /tmp/private
RUN rm /home/jovyan/.ssh/id_rsa
