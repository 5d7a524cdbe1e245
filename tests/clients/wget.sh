#!/usr/bin/env bash
# wget -r, told to ignore robots.txt itself.
# usage: wget.sh BINARY
. "$(dirname "$0")/lib.sh"
need wget wget
for site in "$PLAIN" "$TLS"; do
    # wget may be built on GnuTLS, which reads no environment variable: the bundle has to be named.
    politely sh -c 'exec wget --no-config --ca-certificate="$SSL_CERT_FILE" -e robots=off -r -l 5 -p -nv --tries 1 -P "$0" "$1"' \
        "$WORK/pages" "$site/" || [ $? = 8 ] || fail "wget ended with neither 0 nor 8 (an answer was an error)"
done
seen / /one.html /deep/three.html /style.css /script.js /image.svg
nothing_disallowed
