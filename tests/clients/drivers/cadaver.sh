# cadaver
#
# WebDAV. It asks whether to accept the certificate, unless `politely ca install` was run.
family='Command line'
quick=yes
line='politely run sh -c "cadaver -p \${http_proxy#http://} URL"'
install() { debian cadaver; }
version() { cadaver -V 2>&1 | sed -n '1s/cadaver //p'; }
# at PROXY URL…: of each site, in one session at a terminal.
at() {
    proxy=$1
    shift
    for site in $(printf '%s\n' "$@" | cut -d / -f 1-3 | uniq); do
        { echo y; printf '%s\n' "$@" | sed -n "s,^$site/,cat /,p"; echo quit; } |
            politely run script -qec "cadaver $proxy $site/" /dev/null
    done
}
fetch() {
    at '-p "${http_proxy#http://}"' "$@"
}
bare() {
    at '' "$@"
}
