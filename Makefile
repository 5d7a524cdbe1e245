# politely: `make demo` shows it at work, `make test` passes all tests. See README.md.

CARGO ?= cargo
PREFIX ?= /usr/local

.DEFAULT_GOAL := help
.PHONY: help demo test ci build install needs

help:
	@echo "make demo     crawl a sample site on this machine through the proxy, each answer explained"
	@echo "make test     build and run all tests"
	@echo "make build    the optimised binary, target/release/politely"
	@echo "make install  that binary, the configuration and the systemd service, below $(PREFIX) and /etc"
	@echo "make ci       everything that must hold before a change goes in"

demo: needs
	@$(CARGO) run --locked --quiet -- demo

test: needs
	@$(CARGO) test --locked --no-default-features --lib --quiet
	@$(CARGO) test --locked

build: needs
	@$(CARGO) build --locked --release

install: build
	install -D -m 755 target/release/politely $(DESTDIR)$(PREFIX)/bin/politely
	test -e $(DESTDIR)/etc/politely/politely.yaml || \
	  install -D -m 644 conf/politely.yaml $(DESTDIR)/etc/politely/politely.yaml
	install -D -m 644 systemd/politely.service $(DESTDIR)/etc/systemd/system/politely.service

ci:
	@bash .ci/run

# zlib-ng, one of pingora's dependencies, is built with cmake.
needs:
	@command -v cc >/dev/null || { echo "error: no C compiler"; echo "hint: apt-get install gcc"; exit 1; }
	@command -v $(CARGO) >/dev/null || { echo "error: no cargo"; echo "hint: install Rust from https://rustup.rs"; exit 1; }
	@command -v cmake >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing cmake, which zlib-ng is built with"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq cmake >/dev/null; \
	  else \
	    echo "error: cmake is missing, which zlib-ng is built with"; echo "hint: sudo apt-get install cmake"; exit 1; \
	  fi; }
