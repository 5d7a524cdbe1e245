# curl
#
# `--retry` waits for as long as Retry-After says.
family='Command line'
quick=yes
returns=yes
install() { debian curl; }
version() { curl --version | sed -n '1s/curl \([^ ]*\).*/\1/p'; }
fetch() {
    for url; do
        politely run curl -sS --retry 3 --output page "$url"
    done
}
