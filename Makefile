# `make help` lists what there is. CI (.ci/run) uses these targets or the same
# plain go commands.

SHELL := /bin/bash
GO ?= go

# The tools have modules of their own, so that their dependencies stay out of
# the service's. CGO_ENABLED=0 spares sqlc its long C build.
LINT := $(GO) tool -modfile=tools/lint/go.mod golangci-lint
SQLC := CGO_ENABLED=0 $(GO) tool -modfile=tools/sqlc/go.mod sqlc

FUZZTIME ?= 30s

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## start everything, run the sample workflows, keep serving
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
fmt: ## gofumpt and the order of imports
	$(LINT) fmt ./...

.PHONY: generate
generate: ## write everything generated anew: queries, testdata, openapi
	$(SQLC) generate
	$(GO) generate ./... ./testdata
	$(MAKE) openapi

.PHONY: check-generated
check-generated: ## fail where a generated file differs from its source
	$(SQLC) diff
	$(SQLC) vet
	$(GO) test ./cmd/tranche ./api -run 'Generated|OpenAPI'

.PHONY: openapi
openapi: ## write the golden OpenAPI document anew
	$(GO) test ./api -run OpenAPI -update

.PHONY: contract
contract: ## hold the OpenAPI document to its rules, its callers and clients in Go and TypeScript
	tools/contract/check

.PHONY: release-contract
release-contract: ## with a release: what callers rely on from now on
	cp api/openapi.json api/openapi.released.json

.PHONY: bench
bench: ## the service beside the limit of its database: a table, and bench.json (ten minutes; Linux)
	$(GO) run ./tools/bench --large-items 1000000 --json bench.json

.PHONY: bench-quick
bench-quick: ## the same in about two minutes, with small batches
	$(GO) run ./tools/bench --quick --json bench.json

.PHONY: bench-go
bench-go: ## benchmarks of the engine, the expressions and the task types alone
	$(GO) test -run '^$$' -bench . -benchmem ./internal/engine ./internal/expression ./internal/task ./internal/workflow ./internal/exactjson

.PHONY: bench-lists
bench-lists: ## lists of executions with random filters among ten million of them (minutes, 10 GB of disk)
	$(GO) test ./queries -run '^$$' -bench ExecutionList -benchtime 3000x -timeout 60m -args -list-rows 10000000

.PHONY: crash-batch
crash-batch: ## a batch of 20,000 items with effects whose worker is killed every few seconds (minutes)
	TRANCHE_TEST_CRASH_ITEMS=20000 $(GO) test ./cmd/tranche -run KillWorkersAllTheTime -count 1 -v -timeout 30m

.PHONY: soak
soak: ## processes and database killed, suspended and restarted for 150 s while callers use them (minutes; Linux)
	TRANCHE_TEST_SOAK=150s $(GO) test ./cmd/tranche -run Soak -count 1 -v -timeout 30m

.PHONY: large-files
large-files: ## three files of 300 MB over HTTP in one batch, in little memory (minutes, 2 GB of disk)
	TRANCHE_TEST_UPLOAD_MB=300 $(GO) test ./internal/batch -run LongUploads -count 1 -v -timeout 30m

.PHONY: bench-batch
bench-batch: ## batches of 100,000 and a million, and small ones beside large ones, beside River's jobs that do nothing (minutes)
	$(GO) run ./tools/bench --only 'drain|batch' --large-items 1000000

.PHONY: fuzz
fuzz: ## fuzz every parser for FUZZTIME (30s) each
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$pkg; \
	  done; done
