# wget2
#
# http only: for https, 1.99 speaks TLS to the proxy.
family='Command line'
schemes=http
install() { debian wget2; }
version() { wget2 --version | sed -n '1s/GNU Wget2 \([^ ]*\).*/\1/p'; }
crawl() {
    politely run wget2 --robots=off --recursive --waitretry=60 "$@"
}
