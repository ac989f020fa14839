# pgshoal: `make help` says what can be done here.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go

# Options of `pgshoal up|down|status`, for example: make up ARGS="--nodes 2 --port 0"
ARGS ?=
# How long `make fuzz` spends on each target, and which targets (a regular expression).
FUZZTIME ?= 20s
FUZZ ?= .
# Which benchmarks `make bench` runs (a regular expression).
BENCH ?= .
# Further options of `go test`, for example: make test TESTFLAGS=-short
TESTFLAGS ?=

# The version in the binary comes from git, when git can tell it.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

# Packages that run without the race detector: they spend their time in PostgreSQL and in other
# processes, which the detector does not see, or in loops that it makes ten times slower.
PLAIN := cmd/pgshoal keyspace localcluster sqltext

.PHONY: help
help: ## Say what can be done (this text)
	@echo 'Usage: make TARGET, with one of'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'ARGS="..." is passed on to up, down and status; FUZZTIME, FUZZ, BENCH and TESTFLAGS are explained in the Makefile.'

.PHONY: up
up: install-postgres build ## Run a cluster on this machine until Ctrl-C, creating it the first time
	@exec bin/pgshoal up $(ARGS)

.PHONY: down
down: build ## Stop the cluster on this machine; its data stays
	@bin/pgshoal down $(ARGS)

.PHONY: status
status: build ## Show the cluster on this machine
	@bin/pgshoal status $(ARGS)

.PHONY: build
build: ## Build bin/pgshoal (the first time takes minutes: PostgreSQL's grammar is compiled)
	@$(GO) build -buildvcs=$(VCS) -o bin/pgshoal ./cmd/pgshoal

.PHONY: test
test: install-postgres lint ## Everything: lint, unit tests, integration tests on real PostgreSQL servers
	@log=$$(mktemp) && trap 'rm -f "$$log"' EXIT; \
	plain=$$($(GO) list $(addprefix ./,$(PLAIN))); \
	race=$$($(GO) list ./... | grep -vxF "$$plain"); \
	failed=0; \
	run() { echo "go test $$1"; \
	  $(GO) test -count=1 -p 2 -timeout 9m $$1 $(TESTFLAGS) $$2 2>&1 | tee -a "$$log" || failed=1; }; \
	run -race "$$race"; \
	run "" "$$plain"; \
	awk '/^ok/ { ok++ } /^FAIL\t/ { bad = bad "\n  " $$2 } /^ *--- FAIL/ { bad = bad "\n    " $$3 } \
	  END { printf "\nsummary: %d packages ok, %s, in %d s\n", ok, bad ? "FAILED:" bad : "none failed", '$$SECONDS' }' "$$log"; \
	exit $$failed

.PHONY: lint
lint: vet ## vet, gofumpt, staticcheck, deadcode, go fix: nothing here needs the network once modules are there
	@files=$$($(GO) tool gofumpt -l $$($(GO) list -f '{{.Dir}}' ./...)); \
	if [ -n "$$files" ]; then echo "not formatted (make fmt does it):"; echo "$$files"; exit 1; fi
	@$(GO) tool staticcheck ./...
	@dead=$$($(GO) tool deadcode -test ./...); \
	if [ -n "$$dead" ]; then echo "functions that nothing calls:"; echo "$$dead"; exit 1; fi
	@diff=$$($(GO) fix -diff ./... || true); \
	if [ -n "$$diff" ]; then echo "go fix would change:"; echo "$$diff"; exit 1; fi

.PHONY: vet
vet: ## go vet
	@$(GO) vet ./...

.PHONY: fmt
fmt: ## Format all Go files
	@$(GO) tool gofumpt -w $$($(GO) list -f '{{.Dir}}' ./...)

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in what is used (needs the network)
	@$(GO) tool govulncheck ./...

.PHONY: fuzz
fuzz: ## Fuzz everything that reads bytes from outside, FUZZTIME for each target
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | grep -E '$(FUZZ)' | sort | \
	while IFS=: read -r file func; do \
	  target=$${func#func }; package=$$(dirname "$$file"); \
	  echo "$$package $$target"; \
	  $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"; \
	done

.PHONY: bench
bench: ## Run the benchmarks of all packages
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 \
	  $$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)

.PHONY: install-postgres
install-postgres: ## Install PostgreSQL's server programs with apt-get, if none of version 15 or newer is found
	@for dir in $$(dirname "$$(readlink -f "$$(command -v initdb || true)")") /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin; do \
	  if [ -x "$$dir/initdb" ] && version=$$("$$dir/postgres" --version) && \
	     [ "$$(sed -E 's/.*\(PostgreSQL\) ([0-9]+).*/\1/' <<<"$$version")" -ge 15 ]; then exit 0; fi; \
	done; \
	root=; [ "$$(id -u)" = 0 ] || root=sudo; \
	if ! command -v apt-get >/dev/null || { [ -n "$$root" ] && ! command -v sudo >/dev/null; }; then \
	  echo 'PostgreSQL 15 or newer was not found, and apt-get (as root or with sudo) is not there to install it.'; \
	  echo 'Install its server programs and run this again.'; exit 1; \
	fi; \
	apt() { $$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 "$$@" </dev/null; }; \
	echo 'Installing PostgreSQL with apt-get (the packages postgresql-common and postgresql).'; \
	apt update; \
	if ! dpkg -s postgresql-common >/dev/null 2>&1; then \
	  apt install --no-install-recommends postgresql-common; \
	  echo 'Debian would create and start a server of its own (create_main_cluster); pgshoal needs none, so this is turned off.'; \
	  $$root sed -Ei 's/^#? *create_main_cluster *=.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf; \
	fi; \
	apt install --no-install-recommends postgresql; \
	newest=$$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1); \
	echo "Installed $$("$$newest/postgres" --version) in $$newest."; \
	if [ "$$("$$newest/postgres" --version | sed -E 's/.*\(PostgreSQL\) ([0-9]+).*/\1/')" -lt 15 ]; then \
	  echo 'This is too old: pgshoal needs 15 or newer. Add the packages of the PostgreSQL project and run this again.'; exit 1; \
	fi

.PHONY: clean
clean: ## Remove what was built; clusters and their data stay
	@rm -rf bin dist
