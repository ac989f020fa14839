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
# How long `make soak` runs.
SOAKTIME ?= 60s
# Which benchmarks `make microbench` runs (a regular expression).
BENCH ?= .
# Further options of `go test`, for example: make test TESTFLAGS=-short
TESTFLAGS ?=

# The version in the binary comes from git, when git can tell it.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

# All Go files, also those that a build tag leaves out.
GOFILES = $$(find . -name '*.go' -not -path '*/node_modules/*' -not -path './.*')

# The race detector makes tests several times slower. In `make test`, which stays under ten minutes on two cores, it watches the packages that have
# goroutines; `make race` has it everywhere. RACE= turns it off.
RACE ?= -race
# Packages without goroutines of their own, and the commands, which are slow enough without it; so are the tests of integration.
UNRACED = keyspace|placement|simulate|sqltext|analyze|copyrows|plan|exec|cmd/pgshoal
# Packages that run both ways: the model check of twopc has one goroutine and leaves itself out under the race detector.
TWICE = twopc

.PHONY: help
help: ## Say what can be done (this text)
	@echo 'Usage: make TARGET, with one of'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'ARGS="..." is passed on to up, down and status; FUZZTIME, FUZZ, BENCH, TESTFLAGS and RACE are explained in the Makefile.'

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
test: install-postgres install-node lint ## Everything: lint, unit tests, integration tests on real PostgreSQL servers
	@export PGSHOAL_ALL_CLIENTS=1; logs=$$(mktemp -d); lanes=; trap 'kill $$lanes 2>/dev/null || true; rm -rf "$$logs"' EXIT; failed=0; \
	all=$$($(GO) list ./...); test="$(GO) test -count=1 -p 1 -timeout 9m $(TESTFLAGS)"; \
	$$test $(RACE) $$(echo "$$all" | grep -vE '/($(UNRACED)|integration)$$') >"$$logs/raced" 2>&1 & lanes="$$lanes $$!"; \
	$$test $$(echo "$$all" | grep -E '/($(UNRACED)|$(TWICE))$$') >"$$logs/unraced" 2>&1 & lanes="$$lanes $$!"; \
	$$test ./integration 2>&1 | tee "$$logs/integration" || failed=1; \
	for lane in $$lanes; do wait $$lane || failed=1; done; lanes=; cat "$$logs/raced" "$$logs/unraced"; \
	cat "$$logs"/* | \
	awk '/^ok/ { ok++ } /^FAIL\t/ { bad = bad "\n  " $$2 } /^ *--- FAIL/ { bad = bad "\n    " $$3 } \
	  END { printf "\nsummary: %d packages ok, %s, in %d s\n", ok, bad ? "FAILED:" bad : "none failed", '$$SECONDS' }'; \
	exit $$failed

.PHONY: race
race: install-postgres install-node ## All tests with the race detector (a quarter of an hour on two cores)
	@PGSHOAL_ALL_CLIENTS=1 $(GO) test -race -count=1 -p 2 -timeout 30m $(TESTFLAGS) ./...

.PHONY: lint
lint: vet ## vet, gofumpt, staticcheck, deadcode, go fix: nothing here needs the network once modules are there
	@files=$$($(GO) tool gofumpt -l $(GOFILES)); \
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
	@$(GO) tool gofumpt -w $(GOFILES)

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in what is used (needs the network)
	@$(GO) tool govulncheck ./...

.PHONY: fuzz
fuzz: ## Fuzz everything that reads bytes from outside, FUZZTIME for each target
	@log=$$(mktemp) && trap 'rm -f "$$log"' EXIT; failed=; \
	for found in $$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed 's/:func /:/' | grep -E '$(FUZZ)' | sort); do \
	  package=$$(dirname "$${found%%:*}"); target=$${found##*:}; \
	  echo "$$package $$target"; \
	  $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" 2>&1 | tee "$$log" && continue; \
	  if grep -q 'context deadline exceeded' "$$log" && ! grep -qE 'Failing input|panic|DATA RACE' "$$log"; then \
	    echo "(that was only the end of the time)"; continue; \
	  fi; \
	  failed="$$failed $$package.$$target"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

.PHONY: torture
torture: install-postgres ## Kill, stop and crash parts of a cluster for minutes and look for lost or half transactions (ARGS="-time 30m -seed 7")
	@$(GO) test $(RACE) -count=1 -v -timeout 0 -run TestTorture ./torture -args -time 5m $(ARGS)

.PHONY: bench
bench: install-postgres install-pgbouncer build ## Compare plain PostgreSQL, pgbouncer and pgshoal in interleaved rounds (ARGS="-rounds 5")
	@$(GO) run ./bench $(ARGS)

.PHONY: sqldiff
sqldiff: install-postgres ## Compare SQL on clusters with one PostgreSQL; writes docs/sql-support.md (ARGS="-duration 5m -seed 1", ARGS="-nodes 3 -only joins")
	@$(GO) run ./sqldiff/cmd -docs docs/sql-support.md $(ARGS)

.PHONY: soak
soak: install-postgres build ## Let sessions come and go for SOAKTIME and print what the router takes before and after
	@$(GO) test -count=1 -timeout 0 -run '^TestSoak$$' -v ./integration -soak $(SOAKTIME)

.PHONY: microbench
microbench: ## Run the benchmarks of all packages
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

# Debian's npm is a package of its own; the nodejs of others brings it along.
.PHONY: install-node
install-node: ## Install Node.js and npm with apt-get for the tests with node-postgres, if they are not there
	@if command -v node >/dev/null && command -v npm >/dev/null; then exit 0; fi; \
	root=; [ "$$(id -u)" = 0 ] || root=sudo; \
	if ! command -v apt-get >/dev/null || { [ -n "$$root" ] && ! command -v sudo >/dev/null; }; then \
	  echo 'Node.js and npm were not found, and apt-get (as root or with sudo) is not there to install them.'; \
	  echo 'Install Node.js 18 or newer with npm and run this again.'; exit 1; \
	fi; \
	apt() { $$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 "$$@" </dev/null; }; \
	echo 'Installing Node.js with apt-get (the packages nodejs and npm).'; \
	apt update; \
	command -v node >/dev/null || apt install --no-install-recommends nodejs; \
	command -v npm >/dev/null || apt install --no-install-recommends npm

.PHONY: install-pgbouncer
install-pgbouncer: ## Install pgbouncer with apt-get for `make bench`, if it is not there
	@if command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]; then exit 0; fi; \
	root=; [ "$$(id -u)" = 0 ] || root=sudo; \
	echo 'Installing pgbouncer with apt-get; its own service is not needed and is stopped.'; \
	$$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends pgbouncer </dev/null; \
	$$root service pgbouncer stop >/dev/null 2>&1 || true

.PHONY: clean
clean: ## Remove what was built; clusters and their data stay
	@rm -rf bin dist
