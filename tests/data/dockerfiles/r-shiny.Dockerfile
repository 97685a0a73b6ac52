FROM rocker/r-ver:4.4.1
RUN apt-get update && apt-get install -y sudo libcurl4-openssl-dev libssl-dev \
 && apt-get clean
RUN R -e "install.packages(c('shiny', 'ggplot2'))"
ADD https://example.org/config/app.tar.gz /srv/
RUN service cron start
EXPOSE 3838
CMD ["sudo", "-u", "shiny", "R", "-e", "shiny::runApp('/srv/app')"]
