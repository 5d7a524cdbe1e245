#!/usr/bin/env bash
# Headless Chromium: a page with its styles, scripts, images and fetches.
# usage: chromium.sh BINARY
. "$(dirname "$0")/lib.sh"
need chromium chromium
need certutil libnss3-tools
# It reads neither SSL_CERT_FILE nor a bundle: the authority has to be in its own database, which `run` sees to.
politely chromium --version || fail "chromium ended in an error"
grep -q "Chromium's trust: made $WORK/home/.pki/nssdb and added to it" "$WORK/client.log" || fail "it did not say so"
for site in "$PLAIN" "$TLS"; do
    # By itself it would go to loopback without the proxy.
    politely sh -c 'HOME="$0" exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --disable-default-apps \
        --user-data-dir="$0/data" --proxy-server="$http_proxy" --proxy-bypass-list="<-loopback>" \
        --virtual-time-budget=8000 --dump-dom "$1"' "$WORK/home" "$site/" || fail "chromium ended in an error"
done
grep -q '<title>index</title>' "$WORK/client.log" || fail "the page was not shown"
# A refusal is a page that people can read.
politely sh -c 'HOME="$0" exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --user-data-dir="$0/data" --proxy-server="$http_proxy" --proxy-bypass-list="<-loopback>" --dump-dom "$1"' \
    "$WORK/home" "$TLS/private/two.html" || fail "chromium ended in an error"
grep -q 'robots.txt' "$WORK/client.log" || fail "the refusal was not shown"
seen / /style.css /script.js /image.svg /data.json
nothing_disallowed
