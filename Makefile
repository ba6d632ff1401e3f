# `make help` lists the targets. CI (.ci/run) runs the same plain go commands.

SHELL := /bin/bash
GO ?= go

# Each tool has a module of its own, so that the service does not depend on the tool's
# dependencies. CGO_ENABLED=0 avoids the long C build of sqlc.
LINT := $(GO) tool -modfile=tools/lint/go.mod golangci-lint
SQLC := CGO_ENABLED=0 $(GO) tool -modfile=tools/sqlc/go.mod sqlc

FUZZTIME ?= 30s

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## run the sample workflows on a new service, and keep serving
	$(GO) run ./cmd/tranche demo

.PHONY: test
test: ## all tests; they start their own PostgreSQL
	$(GO) test ./...

.PHONY: race
race: ## all tests with the race detector
	$(GO) test -race ./...

.PHONY: lint
lint: ## golangci-lint with the rules of .golangci.yml (the first build takes minutes)
	$(LINT) run ./...

.PHONY: fmt
fmt: ## format the code and order the imports
	$(LINT) fmt ./...

.PHONY: generate
generate: ## regenerate queries, testdata and the OpenAPI document
	$(SQLC) generate
	$(GO) generate ./... ./testdata
	$(MAKE) openapi

.PHONY: check-generated
check-generated: ## fail if a generated file differs from its source
	$(SQLC) diff
	$(SQLC) vet
	$(GO) test ./cmd/tranche ./api -run 'Generated|OpenAPI'

.PHONY: openapi
openapi: ## regenerate the golden OpenAPI document
	$(GO) test ./api -run OpenAPI -update

.PHONY: contract
contract: ## check the OpenAPI document: rules, compatibility, and clients in Go and TypeScript
	tools/contract/check

.PHONY: release-contract
release-contract: ## at a release: record the OpenAPI document that later versions must stay compatible with
	cp api/openapi.json api/openapi.released.json

.PHONY: bench
bench: ## compare the service with the limits of its database: a table and bench.json (ten minutes; Linux)
	$(GO) run ./tools/bench --large-items 1000000 --json bench.json

.PHONY: bench-quick
bench-quick: ## the same with small batches (two minutes; Linux)
	$(GO) run ./tools/bench --quick --json bench.json

.PHONY: bench-go
bench-go: ## benchmarks of the engine, the expressions and the task types
	$(GO) test -run '^$$' -bench . -benchmem ./internal/engine ./internal/expression ./internal/task ./internal/workflow ./internal/exactjson

.PHONY: bench-lists
bench-lists: ## benchmark of lists with random filters over ten million executions (minutes, 10 GB of disk)
	$(GO) test ./queries -run '^$$' -bench ExecutionList -benchtime 3000x -timeout 60m -args -list-rows 10000000

.PHONY: crash-batch
crash-batch: ## kill the worker of a batch of 20,000 items with effects every 1,000 items (minutes)
	TRANCHE_TEST_CRASH_ITEMS=20000 $(GO) test ./cmd/tranche -run KillWorkersOfBatch -count 1 -v -timeout 30m

.PHONY: soak
soak: ## kill, suspend and restart processes and database for 150 s while callers use them (minutes; Linux)
	TRANCHE_TEST_SOAK=150s $(GO) test ./cmd/tranche -run Soak -count 1 -v -timeout 30m

.PHONY: large-files
large-files: ## upload three files of 300 MB to one batch in little memory (minutes, 2 GB of disk)
	TRANCHE_TEST_UPLOAD_MB=300 $(GO) test ./internal/batch -run LongUploads -count 1 -v -timeout 30m

.PHONY: bench-batch
bench-batch: ## compare batches of 100,000 and a million items, and a small batch during a large one, with River's drain of empty jobs (minutes)
	$(GO) run ./tools/bench --only 'drain|batch' --large-items 1000000

.PHONY: fuzz
fuzz: ## fuzz every parser for FUZZTIME (30s) each
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$pkg; \
	  done; done
