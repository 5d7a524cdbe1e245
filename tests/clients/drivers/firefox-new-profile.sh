# Firefox in a new profile
#
# [browsers](browsers.md#firefox)
family='Browsers'
line="politely run sh -c 'firefox --profile PROFILE --headless --screenshot page.png URL'"
sees='/ /style.css /script.js /image.svg /data.json'
install() { debian firefox-esr libnss3-tools; }
version() { firefox-esr --version | sed 's/.* \([^ ]*\)$/\1/'; }
recipe shot.sh <<'END'
for url; do
    profile=$(mktemp -d)
    certutil -A -t C,, -n politely -i "$("$BINARY" ca path)" -d "sql:$profile"
    timeout 60 firefox-esr --headless --profile "$profile" --screenshot "$PWD/page.png" "$url"
    rm -rf "$profile"
done
END
crawl() {
    politely run sh shot.sh "$@"
}
