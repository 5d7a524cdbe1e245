# aria2
#
# `--ca-certificate`. Its own settings count too, unless `--no-conf` is given.
family='Command line'
install() { debian aria2; }
version() { aria2c --version | sed -n '1s/aria2 version //p'; }
fetch() {
    politely run sh -c 'aria2c --force-sequential --ca-certificate="$SSL_CERT_FILE" "$@"' sh "$@"
}
