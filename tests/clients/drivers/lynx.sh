# lynx
family='Command line'
install() { debian lynx; }
version() { lynx --version | sed -n '1s/Lynx Version \([^ ]*\).*/\1/p'; }
fetch() {
    for url; do
        politely run lynx -dump "$url"
    done
}
