FROM debian:bookworm
RUN apt-get update && apt-get install -y curl gcc && rm -rf /var/lib/apt/lists/*
RUN curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y
ENV PATH="/root/.cargo/bin:${PATH}"
WORKDIR /usr/src/app
COPY . .
RUN cargo build --release
CMD ["./target/release/app"]
