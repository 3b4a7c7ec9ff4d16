# The steps of the check are in .ci/run; the targets here are short names for
# them.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X github.com/terminal-runtime/trl/internal/cli.version=$(VERSION)

.PHONY: build install quick quick-packages test check lint fuzz bench torture stories sdk places vm dist clean

build: ## build the static binary, as bin/trl
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/trl ./cmd/trl

install: ## install it into GOBIN
	CGO_ENABLED=0 $(GO) install -trimpath -ldflags "$(LDFLAGS)" ./cmd/trl
	@echo "installed $$($(GO) list -f '{{.Target}}' ./cmd/trl)"

# The packages whose tests neither start the binary nor drive shells.
QUICK := ./api ./client ./conformance ./docs ./internal ./internal/access ./internal/caller ./internal/cast ./internal/cli ./internal/console ./internal/contract \
	./internal/drawing ./internal/freelist ./internal/front ./internal/journal ./internal/ledger ./internal/pty ./internal/route ./internal/service/... ./internal/spelling ./internal/units ./internal/vt

quick: ## run the tests that most changes break, in less than half a minute
	$(GO) test -short -timeout 2m -skip '^(TestMust|TestStories|TestTorture|TestImages)' $(QUICK)

quick-packages: ## print the names of these packages
	@echo $(QUICK)

test: ## run every test except the long tables, with the race detector
	$(GO) test -race -short ./...

check: ## run everything, exactly as CI does
	./.ci/run

lint: ## format and lint
	./.ci/run lint vet

stories: ## run the scripts in cmd/trl/testdata/script against the real binary
	./.ci/run stories

sdk: ## test the SDKs against the real binary, and as packages
	./.ci/run build sdk

places: ## run the tests that need dockerd, podman and sshd, as root
	./.ci/run build places

vm: ## run the tests that need another kernel, in virtual machines
	./.ci/run build vm

torture: ## run the conformance table in every shell; RUNS=3 repeats it
	TRL_TORTURE_RUNS=$(or $(RUNS),1) ./.ci/run torture

fuzz: ## run every fuzz target; FUZZTIME=10m runs each for longer
	TRL_FUZZ_TIME=$(or $(FUZZTIME),1m) ./.ci/run fuzz

dist: ## build a release in dist/
	$(GO) run ./packaging/dist

bench: ## run every benchmark
	$(GO) test -run '^$$' -bench . -benchmem ./...

clean:
	rm -rf bin dist
