# httrack
#
# http only. `-s0` leaves robots.txt to politely.
family='Command line'
schemes=http
install() { debian httrack; }
version() { httrack --version | sed -n 's/.*version \([0-9.-]*\).*/\1/p'; }
crawl() {
    politely run sh -c 'httrack "$@" -P "${http_proxy#http://}" -s0 -q -O mirror' sh "$@"
}
bare() {
    politely run httrack "$@" -s0 -q -T5 -R0 -r1 -O mirror
}
