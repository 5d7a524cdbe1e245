# Chromium
#
# `--no-sandbox` as root only. More: [browsers](browsers.md).
family='Browsers'
line='politely run chromium --headless --dump-dom URL'
quick=yes
sees='/ /style.css /script.js /image.svg /data.json'
install() { debian chromium libnss3-tools; }
version() { chromium --version | sed 's/Chromium \([^ ]*\).*/\1/'; }
crawl() {
    for url; do
        politely run chromium --headless --no-sandbox --disable-background-networking --timeout=6000 --dump-dom "$url"
    done
}
