#!/bin/sh
# Installs politely for Linux: command, manual, completions, documentation. Verifies the archive's SHA-256.
#
#     sh install.sh
#
# PREFIX         where to (default: /usr/local as root, else ~/.local)
# POLITELY_URL   where the archive is (default: the release that this script is from)
#
# The copy in a release has version, address and checksums; packaging/release writes them.
set -eu

version='@VERSION@'
url='@URL@'
checksums='@CHECKSUMS@'

main() {
    url=${POLITELY_URL:-$url}
    if [ -z "${PREFIX:-}" ]; then
        if [ "$(id -u)" = 0 ]; then PREFIX=/usr/local; else PREFIX=$HOME/.local; fi
    fi
    case $(uname -s)-$(uname -m) in
    Linux-x86_64 | Linux-aarch64) ;;
    *) fail "there is no politely for $(uname -s) on $(uname -m)" ;;
    esac
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    # The first that runs here: without glibc, or with an old one, it is the static one.
    is_known='' runs=''
    for system in gnu musl; do
        name=politely-$version-$(uname -m)-unknown-linux-$system
        expected=$(echo "$checksums" | sed -n "s/^\([0-9a-f]*\) [ *]$name\.tar\.gz\$/\1/p")
        [ -n "$expected" ] || continue
        is_known=yes
        fetch "$url/$name.tar.gz" "$place/archive" || fail "cannot fetch $url/$name.tar.gz"
        found=$(sha256 "$place/archive")
        [ "$found" = "$expected" ] || fail "the checksum of $name.tar.gz is $found, not $expected" "nothing was installed; try again"
        tar -xzf "$place/archive" -C "$place"
        code=0
        "$place/$name/bin/politely" --version >/dev/null 2>&1 || code=$?
        # The shell's code for a file that may not be executed.
        [ $code != 126 ] || fail "nothing can be run in $place" "set TMPDIR to a directory that is not mounted with noexec"
        [ $code != 0 ] || { runs=yes && break; }
    done
    [ -n "$is_known" ] || fail "this script has no checksum of a politely for $(uname -m)" "take install.sh from a release"
    [ -n "$runs" ] || fail "politely does not run here" "build it from source instead"

    mkdir -p "$PREFIX"
    PREFIX=$(cd "$PREFIX" && pwd)
    bin=$(printf %s "$PREFIX/bin/politely" | sed 's/[&|\\]/\\&/g')
    # systemd would split it.
    case $PREFIX in *[[:space:]]*) bin="\"$bin\"" ;; esac
    sed -i "s|/usr/local/bin/politely|$bin|" "$place/$name"/share/politely/systemd/system/*
    # The command is replaced whole: one that runs cannot be overwritten.
    rm -f "$PREFIX/bin/politely"
    cp -R "$place/$name/bin" "$place/$name/share" "$PREFIX/"
    echo "installed $("$PREFIX/bin/politely" --version) in $PREFIX"
    case :$PATH: in
    *:"$PREFIX/bin":*) ;;
    *) echo "hint: $PREFIX/bin is not in PATH" ;;
    esac
}

fetch() {
    if command -v curl >/dev/null; then
        curl -fsSL -o "$2" "$1"
    elif command -v wget >/dev/null; then
        wget -q -O "$2" "$1"
    else
        fail "neither curl nor wget is installed"
    fi
}

sha256() {
    if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | sed 's/ .*//'
}

fail() {
    echo "error: $1" >&2
    [ $# = 1 ] || echo "hint: $2" >&2
    exit 1
}

# Last, so that half a script does nothing.
main
