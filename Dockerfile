# syntax=docker/dockerfile:1
# The image: the program, the C library, the certificates of public authorities, and nothing to log in with.
#
#   docker build -t leafhopper .
#
# Compiled for the machine that builds it. deploy/image/by-hand does the same steps without a container engine.

FROM rust:1.95.0-trixie AS build
# What the image has, whatever rust-toolchain.toml wants beside it for development.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --package leafhopper && \
    deploy/image/root target/release/leafhopper /image

FROM scratch
COPY --from=build /image /
LABEL org.opencontainers.image.title="leafhopper" \
      org.opencontainers.image.description="An outbox sidecar for PostgreSQL whose calls happen once, also across crashes" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
ENV LEAFHOPPER_CONFIG=/etc/leafhopper/leafhopper.toml
USER 65532:65532
WORKDIR /var/lib/leafhopper
EXPOSE 9187
# Whether the loops turn. A database that is away makes nothing unhealthy: another container would wait for the same.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/usr/bin/leafhopper", "healthcheck"]
ENTRYPOINT ["/usr/bin/leafhopper"]
CMD ["run"]
