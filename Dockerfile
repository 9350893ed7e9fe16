# The image of the manager. The build stage runs the command of `make build`, which makes the kubectl plugin too; a test compares them.
# Reproducible: pinned toolchain, locked dependencies, a fixed folder, SOURCE_DATE_EPOCH for time stamps.

FROM docker.io/library/rust:1.95.0-bookworm AS build
WORKDIR /src
ARG SOURCE_DATE_EPOCH=0
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} \
    CARGO_INCREMENTAL=0 \
    RUSTUP_TOOLCHAIN=1.95.0
COPY . .
RUN cargo build --release --locked --package sluice-cli --package sluice-ctl && ./split-debug.sh sluice kubectl-kueue

FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="sluice" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /src/target/release/sluice /sluice
USER 65532:65532
ENTRYPOINT ["/sluice"]
CMD ["manager"]
