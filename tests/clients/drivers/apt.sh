# apt
family='Package managers and the like'
quick=yes
returns=yes
install() { debian apt; }
version() { dpkg-query -W -f '${Version}' apt; }
fetch() {
    for url; do
        politely run /usr/lib/apt/apt-helper download-file "$url" file
    done
}
