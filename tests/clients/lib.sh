# What the scripts for real clients share. Sourced with BINARY set; starts an origin of the script's own, on loopback and
# free ports, and stops it (by its pid) at the end.
#
#   $PLAIN, $TLS        the site's addresses, without the last slash
#   politely COMMAND    runs COMMAND through a proxy of its own: `politely run -- COMMAND`
#   isolated COMMAND    the same in a network of its own: `politely run --isolate -- COMMAND`
#   obeys COMMAND       COMMAND, given an allowed and a disallowed URL of each site, fetches the allowed ones through the
#                       proxy and no other, isolated or not
#   goes_round COMMAND  the same for one that reads no variable: it is told of, and isolated it gets nowhere
#   seen TARGETS…       each arrived at the origin, over http and over https
#   nothing_disallowed  nothing that robots.txt disallows did

set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BINARY=$(realpath "${1:?usage: $0 BINARY}")
WORK=$(mktemp -d)
ORIGIN=
# Installed clients are kept for the next run.
CACHE=${CLIENTS_CACHE:-$HERE/../../target/clients}
mkdir -p "$CACHE"
CACHE=$(cd "$CACHE" && pwd)

cleanup() {
    if [ -n "$ORIGIN" ]; then
        kill "$ORIGIN" 2>/dev/null || true
        wait "$ORIGIN" 2>/dev/null || true
    fi
    rm -rf "$WORK"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*" >&2
    echo "--- what arrived at the origin:" >&2
    cat "$WORK/site/log" >&2 || true
    echo "--- what the client said:" >&2
    tail -n 40 "$WORK/client.log" >&2 2>/dev/null || true
    exit 1
}

need() {
    command -v "$1" >/dev/null || fail "this needs $1 (Debian: apt-get install $2)"
}

need openssl openssl
need python3 python3

# A certificate authority and a certificate for the site.
mkdir "$WORK/site"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=clients' origin" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign \
    -keyout "$WORK/ca.key" -out "$WORK/ca.pem" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=a.localhost" \
    -keyout "$WORK/site/key.pem" -out "$WORK/site.csr" 2>/dev/null
printf 'subjectAltName=DNS:a.localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n' > "$WORK/site.ext"
openssl x509 -req -in "$WORK/site.csr" -CA "$WORK/ca.pem" -CAkey "$WORK/ca.key" -set_serial 1 -days 2 \
    -extfile "$WORK/site.ext" -out "$WORK/site/cert.pem" 2>/dev/null

python3 "$HERE/origin.py" "$WORK/site" &
ORIGIN=$!
for _ in $(seq 200); do
    [ -s "$WORK/site/ports" ] && break
    sleep 0.05
done
read -r PLAIN_PORT TLS_PORT < "$WORK/site/ports" || fail "the origin did not start"
PLAIN=http://a.localhost:$PLAIN_PORT
TLS=https://a.localhost:$TLS_PORT

# Names below .localhost are loopback for the proxy; loopback and odd ports have to be opened.
export POLITELY_EGRESS__ALLOW='[127.0.0.0/8]'
export POLITELY_EGRESS__PORTS='["1-65535"]'
export POLITELY_EGRESS__CA_FILE=$WORK/ca.pem
# One authority for all of a script's runs.
export POLITELY_INTERCEPT__CA__DIRECTORY=$WORK/ca
export XDG_CACHE_HOME=$WORK/cache
# What `run` may make in a home is not for that of whoever tests. pyenv's Python is in it.
[ ! -d "$HOME/.pyenv" ] || export PYENV_ROOT=${PYENV_ROOT:-$HOME/.pyenv}
mkdir "$WORK/home"
export HOME=$WORK/home

politely() {
    timeout 120 "$BINARY" run -- "$@" >> "$WORK/client.log" 2>&1
}

isolated() {
    timeout 120 "$BINARY" run --isolate -- "$@" >> "$WORK/client.log" 2>&1
}

URLS=("$PLAIN/one.html" "$PLAIN/private/two.html" "$TLS/one.html" "$TLS/private/two.html")

obeys() {
    for way in politely isolated; do
        : > "$WORK/site/log"
        $way "$@" "${URLS[@]}" || true
        seen /one.html
        nothing_disallowed_arrived
        nothing_direct
    done
    echo "  $1 ... obeys"
}

goes_round() {
    : > "$WORK/site/log"
    : > "$WORK/client.log"
    # Names below .localhost are not everybody's.
    local urls=("${URLS[@]/a.localhost/127.0.0.1}")
    politely "$@" "${urls[@]}" || true
    grep -q ' direct$' "$WORK/site/log" || fail "$1 went through the proxy: its recipe is out of date"
    if ! grep -q ' via$' "$WORK/site/log"; then
        grep -q 'nothing came through the proxy' "$WORK/client.log" || fail "$1 went round, and nothing was said"
    fi
    : > "$WORK/site/log"
    isolated "$@" "${urls[@]}" || true
    nothing_disallowed_arrived
    nothing_direct
    echo "  $1 ... gets nowhere round the proxy"
}

nothing_direct() {
    if grep -v ' politely/[^ ]* direct$' "$WORK/site/log" | grep -q ' direct$'; then
        fail "something went round the proxy"
    fi
}

seen() {
    for target in "$@"; do
        for scheme in http https; do
            grep -q "^$scheme [A-Z]* $target " "$WORK/site/log" || fail "$target did not arrive over $scheme"
        done
    done
}

nothing_disallowed_arrived() {
    if grep -Eq '^[a-z]+ [A-Z]+ [^ ]*(private/|%70rivate|\.secret )' "$WORK/site/log"; then
        fail "something disallowed arrived"
    fi
}

nothing_disallowed() {
    nothing_disallowed_arrived
    for scheme in http https; do
        [ "$(grep -c "^$scheme GET /robots.txt politely" "$WORK/site/log")" -ge 1 ] || fail "robots.txt was not read over $scheme"
    done
}
