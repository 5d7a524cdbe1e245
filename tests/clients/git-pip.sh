#!/usr/bin/env bash
# git and pip.
# usage: git-pip.sh BINARY
. "$(dirname "$0")/lib.sh"
need git git
need python3 python3
obeys sh -c 'for url; do GIT_TERMINAL_PROMPT=0 git ls-remote "$url"; curl -q -s -o /dev/null "$url"; done' sh
seen '/one.html/info/refs?service=git-upload-pack'
obeys sh -c 'for url; do python3 -m pip -q --isolated --disable-pip-version-check download --no-deps -d "$0" "$url#egg=x"; done' "$WORK/pip"
