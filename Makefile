# Striatum. Every target says what it does; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X striatum/internal/cli/versioncmd.version=$(VERSION)
GOBUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build striatum, striatumd and striatum-init into bin/
	@mkdir -p bin
	$(GOBUILD) -o bin/ ./cmd/...

.PHONY: deps
deps: ## install the Debian packages that the sandbox needs (containerd, runc, ca-certificates)
	@scripts/install-deps

.PHONY: quickstart
quickstart: deps build ## run the main job on a copy of examples/quickstart in a temporary home
	@scripts/quickstart

.PHONY: test
test: deps ## run every test, against a real containerd and real third-party verifiers
	@scripts/test

.PHONY: acceptance
acceptance: deps build ## from an empty repository to a claim that reads VERIFIED, and every refusal on the way
	@scripts/install-deps tests
	@scripts/acceptance

.PHONY: attack
attack: deps ## escapes, bombs and cheats against a real lane, with a table of what came of them (about 15 minutes)
	@scripts/attack

.PHONY: check
check: ## format, vet, lint, generated files, import rules, unit tests: CI without its slow parts
	@scripts/check

.PHONY: lint
lint: ## run golangci-lint and actionlint as pinned in scripts/build-tools (compiled on first use)
	@scripts/lint

.PHONY: bench
bench: deps build ## measure speed and memory as ratios against a baseline in the same run
	@scripts/bench

.PHONY: generate
generate: ## make the generated documents again (docs/cli, man pages, catalog, schemas)
	go generate ./...

.PHONY: reproducible
reproducible: ## build twice into two folders and compare the bytes
	@scripts/reproducible

.PHONY: clean
clean: ## remove bin/
	rm -rf bin
