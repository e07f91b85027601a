# docker build -t binrelay .            the stock relay
# docker build --build-arg FUNCTIONS=./cmd/example -t mine .      with functions compiled in
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG FUNCTIONS=./cmd/relay
ARG VERSION=devel
ARG COMMIT=unknown
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X binrelay/cmd.version=${VERSION} -X binrelay/cmd.commit=${COMMIT}" -o /out/relay "${FUNCTIONS}" \
 && mkdir -p /out/data

# Static, without a shell; its user is 65532. Certificates of public authorities are in it.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/relay /relay
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
# Everything else is set by whoever runs it; README lists the variables.
ENV WAL_DIR=/data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s CMD ["/relay", "healthz"]
ENTRYPOINT ["/relay"]
CMD ["run"]
