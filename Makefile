# Everything that is done with this tree. `make` alone prints this list.
SHELL   := bash
GO      ?= go
T       ?= 30s
SEEDS   ?= 1200
FIRST   ?= 1
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X binrelay/cmd.version=$(VERSION) -X binrelay/cmd.commit=$(COMMIT)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0
FUZZ        := $(GO) test -run '^$$' -fuzztime $(T)

.DEFAULT_GOAL := help
.PHONY: help build demo test race short compat values fuzz lint bench soak image clean

help: ## print this list
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/relay, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/relay ./cmd/relay

demo: build ## run the whole relay on embedded parts; needs nothing. Ctrl-C stops it
	@bin/relay demo $(ARGS)

test: build ## run every test with the race detector, on real MariaDB, MySQL and Kafka too; log in bin/test.log
	@bash .ci/tools
	@set -o pipefail; CI=true $(GO) test -race -count=1 -timeout 25m -v ./... 2>&1 | tee bin/test.log | \
	  grep --line-buffered -Ev '^ *(=== (RUN|PAUSE|CONT|NAME)|--- PASS|PASS$$)'; code=$${PIPESTATUS[0]}; \
	  if grep -qE -- '--- SKIP' bin/test.log; then echo "SKIPPED:"; grep -E -A1 -- '--- SKIP' bin/test.log; fi; exit $$code
	@set -o pipefail; $(GO) test -count=1 -v -run AllocatesNothing ./handler 2>&1 | tee -a bin/test.log # not of the race build

short: ## run the tests that need no server, without the race detector
	$(GO) test -short ./...

race: ## run the tests that need no server with the race detector
	$(GO) test -race -short ./...

compat: ## compare each FORMAT, key by key, with what Debezium, Maxwell and Canal wrote for the same binlog
	$(GO) test -count=1 -v -run '^TestCompat' ./relay/binlog

values: ## compare 200,000 random values each with what real MySQL and MariaDB SELECT (SEEDS=n, FIRST=seed); 4 minutes
	$(GO) test -count=1 -timeout 60m -v -run '^TestDifferential$$' ./relay/binlog -seeds $(SEEDS) -seed $(FIRST)

fuzz: ## run every fuzz test for T (default 30s) each
	@$(GO) list ./... | while read -r p; do \
	  $(GO) test -list '^Fuzz' "$$p" | grep '^Fuzz' | while read -r f; do \
	    echo "== $$p $$f"; $(FUZZ) -fuzz "^$$f$$" "$$p" || exit 1; done || exit 1; done

lint: ## gofmt, go vet, staticcheck, import rules, shell syntax
	@out=$$(git ls-files '*.go' | xargs gofmt -l); [ -z "$$out" ] || { echo "not gofmt'd: $$out"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) test -count=1 -run 'TestImportRules|TestReadmeTable' ./cmd
	@for f in .ci/run .ci/tools bench/services/srcdb bench/services/kafka; do bash -n $$f || exit 1; done

bench: ## measure beside the bare library, on real servers too (BENCH=part, BENCH_SECONDS=n; ARGS for more flags)
	$(GO) run ./bench $(ARGS)

soak: build ## run real servers under load with kill -9; bench/soak has the flags (ARGS='-kills 30')
	$(GO) run ./bench/soak -relay bin/relay $(ARGS)

image: ## build the container image (docker, or podman with IMAGE_TOOL=podman)
	$${IMAGE_TOOL:-docker} build --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) -t binrelay .

clean: ## remove what was built
	rm -rf bin
