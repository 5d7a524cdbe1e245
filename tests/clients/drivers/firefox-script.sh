# Firefox started by a script
#
# In a profile that is there when `run` starts: [browsers](browsers.md#firefox).
family='Browsers'
line="politely run sh -c 'firefox --headless --screenshot page.png URL'"
sees='/ /style.css /script.js /image.svg /data.json'
install() { debian firefox-esr libnss3-tools; }
version() { firefox-esr --version | sed 's/.* \([^ ]*\)$/\1/'; }
crawl() {
    profile=$WORK/home/.mozilla/firefox/one
    mkdir -p "$profile"
    certutil -N --empty-password -d "sql:$profile"
    for url; do
        politely run sh -c 'timeout 60 firefox-esr --headless --profile "$0" --screenshot "$PWD/page.png" "$1"' "$profile" "$url"
    done
    certutil -L -d "sql:$profile" | grep run-of-politely && fail "the run left its certificate"
}
