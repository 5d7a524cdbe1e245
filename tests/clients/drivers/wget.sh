# wget
#
# It does not read Retry-After.
family='Command line'
quick=yes
returns=yes
sees='/ /one.html /deep/three.html /style.css /script.js /image.svg'
install() { debian wget; }
version() { wget --version | sed -n '1s/GNU Wget \([^ ]*\).*/\1/p'; }
crawl() {
    politely run wget -e robots=off --recursive --page-requisites --retry-on-http-error=429,503 --waitretry=60 "$@"
}
