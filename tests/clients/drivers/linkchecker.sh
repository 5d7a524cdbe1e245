# linkchecker
#
# Roots of its own: `sslverify=$SSL_CERT_FILE` below `[checking]` of linkcheckerrc.
family='Command line'
line='politely run linkchecker --config linkcheckerrc --no-robots URL…'
install() { debian linkchecker; }
version() { linkchecker --version 2>&1 | sed -n 's,^LinkChecker \([^ ]*\).*,\1,p'; }
crawl() {
    politely run sh -c 'echo "[checking]
sslverify=$SSL_CERT_FILE" > linkcheckerrc
linkchecker --config linkcheckerrc --no-robots "$@"' sh "$@"
}
