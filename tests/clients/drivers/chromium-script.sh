# Chromium started by a script
#
# [browsers](browsers.md#trust)
family='Browsers'
line="politely run sh -c 'chromium --headless --dump-dom URL'"
sees='/ /style.css /script.js /image.svg /data.json'
install() { debian chromium libnss3-tools; }
version() { chromium --version | sed 's/Chromium \([^ ]*\).*/\1/'; }
crawl() {
    for url; do
        politely run sh -c \
            'chromium --headless --no-sandbox --disable-background-networking --timeout=6000 --dump-dom "$0"' "$url"
    done
    [ ! -e "$WORK/home/.pki" ] || fail "the run left its database"
}
