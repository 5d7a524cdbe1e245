#!/usr/bin/env bash
# wget -r, told to ignore robots.txt itself.
# usage: wget.sh BINARY
. "$(dirname "$0")/lib.sh"
need wget wget
for site in "$PLAIN" "$TLS"; do
    politely wget -e robots=off -r -l 5 -p -nv --tries 1 -P "$WORK/pages" "$site/" || [ $? = 8 ] ||
        fail "wget ended with neither 0 nor 8 (an answer was an error)"
done
seen / /one.html /deep/three.html /style.css /script.js /image.svg
nothing_disallowed
