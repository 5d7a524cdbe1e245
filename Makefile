# politely: `make demo` shows it at work, `make test` passes all tests. See README.md.

CARGO ?= cargo
PREFIX ?= /usr/local
# Where systemd looks for what an administrator installs, whatever the prefix.
UNITDIR ?= /etc/systemd/system
# What `make install` installs.
BINARY ?= target/release/politely
# What `make deb` packages.
DIST ?= target/dist/politely

man1 = $(DESTDIR)$(PREFIX)/share/man/man1
man5 = $(DESTDIR)$(PREFIX)/share/man/man5
bash = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zsh = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fish = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
doc = $(DESTDIR)$(PREFIX)/share/doc/politely
share = $(DESTDIR)$(PREFIX)/share/politely

.DEFAULT_GOAL := help
.PHONY: help demo test ci build dist portable static zig install uninstall deb needs

help:
	@echo "make demo       crawl a sample site on this machine through the proxy, each answer explained"
	@echo "make test       build and run all tests"
	@echo "make build      the optimised binary, target/release/politely, its debug information beside it"
	@echo "make install    that binary, manual, completions, documentation, files for Prometheus and Grafana, below $(PREFIX);"
	@echo "                configuration and systemd service, below /etc"
	@echo "make uninstall  removes them, but for configuration and state"
	@echo "make dist       target/dist/politely: optimised further, several times longer to build"
	@echo "make portable   target/*-unknown-linux-gnu/dist/politely: for any Linux with glibc 2.17, OpenSSL linked in, and optimised by a"
	@echo "                profile, so built twice"
	@echo "make static     target/*-unknown-linux-musl/dist/politely: for any Linux, such as Alpine: takes no libraries of the system's"
	@echo "make deb        a Debian package of target/dist/politely"
	@echo "make ci         everything that must hold before a change goes in"

demo: needs
	@$(CARGO) run --locked --quiet -- demo

# Tests wait more than they compute: eight at a time for each core.
test: needs
	@RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((8 * $$(nproc)))} $(CARGO) test --locked

build: needs
	@$(CARGO) build --locked --release
	@packaging/stage target/release/politely $(PREFIX)/bin target/package
	@if [ -e target/package/politely.debug ]; then mv target/package/politely target/package/politely.debug target/release/; fi

dist: needs
	@$(CARGO) build --locked --profile dist

# Zig's compiler and linker have the symbols of each glibc; of this version, manylinux2014's, Rust's own library takes all.
portable: needs zig
	@PATH="$(CURDIR)/target/zig/bin:$$PATH" packaging/profiled $$(uname -m)-unknown-linux-gnu 2.17

static: needs zig
	@! command -v rustup >/dev/null || rustup target add $$(uname -m)-unknown-linux-musl
	@PATH="$(CURDIR)/target/zig/bin:$$PATH" $(CARGO) zigbuild --locked --profile dist --features vendored-openssl --target $$(uname -m)-unknown-linux-musl

zig:
	@[ -x target/zig/bin/cargo-zigbuild ] || { python3 -m venv target/zig && target/zig/bin/pip install --quiet ziglang==0.17.1 cargo-zigbuild==0.24.1 h2==4.4.1; }

# Of what is built already: root may have no cargo.
install:
	@packaging/stage $(BINARY) $(PREFIX)/bin target/install
	install -D -m 755 target/install/politely $(DESTDIR)$(PREFIX)/bin/politely
	install -d $(man1) $(man5) $(bash) $(zsh) $(fish) $(DESTDIR)$(UNITDIR)
	install -m 644 target/install/man/*.1 $(man1)
	install -m 644 target/install/man/*.5 $(man5)
	install -m 644 target/install/completions/politely $(bash)
	install -m 644 target/install/completions/_politely $(zsh)
	install -m 644 target/install/completions/politely.fish $(fish)
	install -m 644 target/install/units/* $(DESTDIR)$(UNITDIR)
	install -D -m 644 -t $(doc) README.md SECURITY.md CHANGELOG.md LICENSE
	install -D -m 644 -t $(doc)/docs docs/*.md docs/demo.svg docs/dashboard.png
	install -D -m 644 -t $(share) conf/agent.yaml
	install -D -m 644 -t $(share)/prometheus conf/prometheus/politely.rules.yml
	install -D -m 644 -t $(share)/grafana conf/grafana/politely.json
	test -e $(DESTDIR)/etc/politely/politely.yaml || \
	  install -D -m 644 conf/politely.yaml $(DESTDIR)/etc/politely/politely.yaml
	@rm -rf target/install
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi

uninstall:
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then \
	  systemctl disable --now politely.socket politely.service 2>/dev/null || true; fi
	rm -f $(DESTDIR)$(PREFIX)/bin/politely $(man1)/politely.1 $(man1)/politely-*.1 $(man5)/politely.yaml.5 \
	  $(bash)/politely $(zsh)/_politely $(fish)/politely.fish \
	  $(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(wildcard systemd/*)))
	rm -rf $(doc) $(share)
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
	@echo "left as they are: $(DESTDIR)/etc/politely, $(DESTDIR)/var/lib/politely"

deb:
	@packaging/deb/build $(DIST)

ci:
	@bash .ci/run

# zlib-ng, one of pingora's dependencies, is built with cmake; OpenSSL is found with pkg-config.
needs:
	@command -v cc >/dev/null || { echo "error: no C compiler"; echo "hint: apt-get install gcc"; exit 1; }
	@command -v $(CARGO) >/dev/null || { echo "error: no cargo"; echo "hint: install Rust from https://rustup.rs"; exit 1; }
	@{ command -v cmake && pkg-config --exists 'openssl >= 3'; } >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing $(NEEDED)"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(NEEDED) >/dev/null; \
	  else \
	    echo "error: cmake, pkg-config or OpenSSL's headers are missing"; echo "hint: sudo apt-get install $(NEEDED)"; exit 1; \
	  fi; }

NEEDED = cmake pkg-config libssl-dev
