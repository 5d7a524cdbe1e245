#!/usr/bin/env bash
# curl, without any flag for the proxy or its certificates.
# usage: curl.sh BINARY
. "$(dirname "$0")/lib.sh"
need curl curl
for site in "$PLAIN" "$TLS"; do
    politely curl -q -sSf "$site/one.html" || fail "an allowed page was refused"
    code=0
    politely curl -q -sSf "$site/private/two.html" || code=$?
    [ "$code" = 22 ] || fail "curl -f ended with $code, not 22"
    code=0
    politely curl -q -sSf --path-as-is "$site/public/../private/two.html" || code=$?
    [ "$code" = 22 ] || fail "dot segments: curl -f ended with $code, not 22"
done
seen /one.html
nothing_disallowed
