# The image of the manager. The build stage runs the command of `make build`, which makes the kubectl plugin too; a test compares them.
# A commit always gives the same binary on the same base images: pinned toolchain, locked dependencies, a fixed folder, the commit's date, no clock.
# The engine that builds the image takes its time stamps from SOURCE_DATE_EPOCH.

FROM docker.io/library/rust:1.95.0-bookworm AS build
WORKDIR /src
ARG SOURCE_DATE_EPOCH=0
# What `sluice version` and the metric kueue_build_info say.
ARG SLUICE_GIT_COMMIT=unknown
ARG SLUICE_BUILD_DATE=unknown
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} \
    SLUICE_GIT_COMMIT=${SLUICE_GIT_COMMIT} \
    SLUICE_BUILD_DATE=${SLUICE_BUILD_DATE} \
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
