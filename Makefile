# What people do with this repository. `make` alone lists it.

export PATH := $(PATH):$(HOME)/.cargo/bin
PREFIX ?= /usr/local

.PHONY: help build demo test fuzz install

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

build: ## Build the program: target/release/sealdisk
	@scripts/install.sh build
	cargo build --release --package sealdisk

demo: ## Install what is missing, build, and show a PostgreSQL on a sealed volume
	@scripts/install.sh demo
	cargo build --release --package sealdisk
	@$(if $(filter 0,$(shell id -u)),,sudo) scripts/demo.sh

test: ## Install what is missing, and run all tests
	@scripts/install.sh test
	@scripts/test.sh

fuzz: ## Fuzz for long: 10 million inputs for each target
	@scripts/install.sh build
	@scripts/fuzz.sh 10000000

install: build ## Install the program, its manual pages and completions under PREFIX (/usr/local)
	install -D target/release/sealdisk $(DESTDIR)$(PREFIX)/bin/sealdisk
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	target/release/sealdisk man $(DESTDIR)$(PREFIX)/share/man/man1
	target/release/sealdisk completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/sealdisk
