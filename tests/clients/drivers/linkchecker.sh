# linkchecker
#
# It brings its own roots, unless its configuration names others.
family='Command line'
install() { debian linkchecker; }
version() { linkchecker --version 2>&1 | sed -n 's,^LinkChecker \([^ ]*\).*,\1,p'; }
crawl() {
    politely run sh -c 'echo "[checking]
sslverify=$SSL_CERT_FILE" > linkcheckerrc
linkchecker --config linkcheckerrc --no-robots "$@"' sh "$@"
}
