# wget2
#
# For http alone: the one of Debian 12 (1.99) speaks TLS to the proxy for https, and cannot be told otherwise.
family='Command line'
schemes=http
install() { debian wget2; }
version() { wget2 --version | sed -n '1s/GNU Wget2 \([^ ]*\).*/\1/p'; }
crawl() {
    politely run wget2 --robots=off --recursive --waitretry=60 "$@"
}
