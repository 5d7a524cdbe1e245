# curl, HTTP/1.0, HTTP/1.1 and HTTP/2
#
# `--http1.0` and `--http1.1` work too.
family='Command line'
line='politely run curl --http2 URL'
install() { debian curl; }
version() { curl --version | sed -n '1s/curl \([^ ]*\).*/\1/p'; }
fetch() {
    politely run sh -c 'for version in --http1.0 --http1.1 --http2; do curl -sS "$version" --remote-name-all "$@"; done' sh "$@"
}
