# syntax=docker/dockerfile:1

# The browser app.
FROM --platform=$BUILDPLATFORM node:24-slim AS app
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
COPY web/package.json web/
COPY e2e/package.json e2e/
RUN --mount=type=cache,target=/root/.npm npm ci --workspace web
COPY web web
RUN npm run build --workspace web

# The program, which holds the app.
FROM --platform=$BUILDPLATFORM golang:1.26 AS program
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
COPY --from=app /src/web/dist web/dist
ARG TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w" -o /out/millpond . \
    && mkdir /out/data

# What runs: one file, the certificates of public authorities to verify upstream with, and a folder for what was captured.
FROM scratch
LABEL org.opencontainers.image.title="Millpond" \
      org.opencontainers.image.description="A capture proxy with a web dashboard" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=program /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=program /out/millpond /millpond
COPY --from=program --chown=65532:65532 /out/data /data
USER 65532:65532
# Inside a container the proxy has to listen on all addresses; who reaches it is decided by what is published. So the image lets it be open:
# publish the port where only you reach it, or set MILLPOND_PROXY_AUTH, which is then asked for all the same.
ENV MILLPOND_DATA=/data \
    MILLPOND_PROXY=0.0.0.0:8080 \
    MILLPOND_ALLOW_OPEN_PROXY=true \
    MILLPOND_DASHBOARD=0.0.0.0:8081
VOLUME /data
EXPOSE 8080 8081
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["/millpond", "healthcheck"]
ENTRYPOINT ["/millpond"]
