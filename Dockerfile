# Keyfast in a small image, to be run where the official image of Redis is run: its names, its rules, its folder.
# The bases are arguments, so that they can be replaced by your own: whatever has Rust and a C compiler, and
# whatever has busybox.
ARG BUILD_BASE=rust:1-slim-bookworm
ARG BASE=busybox:stable-musl

FROM ${BUILD_BASE} AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY benches benches
COPY tests/support tests/support
COPY src src
RUN src/packaging/build /keyfast

FROM ${BASE}
# The user that runs the server, with the numeric IDs of the official image. A container may be started with
# --user and any other user, so every user may write to a new volume.
RUN echo 'redis:x:999:1000::/data:/sbin/nologin' >>/etc/passwd \
 && echo 'redis:x:1000:' >>/etc/group \
 && mkdir -p /data /usr/local/bin \
 && chown redis:redis /data \
 && chmod 1777 /data \
 && for name in redis-server redis-cli redis-check-aof redis-check-rdb \
    valkey-server valkey-cli valkey-check-aof valkey-check-rdb; do ln -s keyfast "/usr/local/bin/$name"; done
COPY src/image/docker-entrypoint.sh src/image/docker-health.sh /usr/local/bin/
COPY --from=build /keyfast /usr/local/bin/keyfast

# A published port is asked from outside the container, which protected mode would refuse, and so is that of
# --metrics-port. Configuration files and options overrule both.
ENV KEYFAST_PROTECTED_MODE=no \
    KEYFAST_METRICS_BIND="* -::*"
VOLUME /data
WORKDIR /data
EXPOSE 6379
STOPSIGNAL SIGTERM
# The first check comes after the interval: with a start period, newer engines would wait for 5 s until then.
HEALTHCHECK --interval=600ms --timeout=5s --retries=10 CMD ["docker-health.sh"]
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["redis-server"]
