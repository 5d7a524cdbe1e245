#!/usr/bin/env bash
# Those that are installed: aria2, lftp, lynx; and httrack, which reads no proxy variable.
# usage: downloaders.sh BINARY
. "$(dirname "$0")/lib.sh"
have() { command -v "$1" > /dev/null; }
! have aria2c || obeys sh -c 'exec aria2c --no-conf -q -Z --auto-file-renaming=false --allow-overwrite -d "$0" --ca-certificate="$SSL_CERT_FILE" "$@"' "$WORK/aria2"
! have lynx || obeys sh -c 'for url; do lynx -dump "$url"; done' sh
! have lftp || obeys sh -c 'for url; do lftp -c "set ssl:ca-file $SSL_CERT_FILE; cat $url"; done' sh
! have httrack || goes_round sh -c 'for url; do httrack "$url" -O "$0/$(echo "$url" | tr -c a-z0-9 _)" -q -r1 -s0 -T5 -R0; done' "$WORK/httrack"
