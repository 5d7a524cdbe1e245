# The site for all clients, on loopback and free ports, and politely's way to it. Sourced by `run`; ended with it, by its pid.

WORK=$(mktemp -d)
SITE=
# Installed clients are kept for the next run.
CACHE=${CLIENTS_CACHE:-$PWD/../../target/clients}
mkdir -p "$CACHE"
CACHE=$(cd "$CACHE" && pwd)
export WORK CACHE BINARY

cleanup() {
    if [ -n "$SITE" ]; then
        kill "$SITE" 2>/dev/null
        wait "$SITE" 2>/dev/null
    fi
    rm -rf "$WORK"
}
trap cleanup EXIT

for tool in openssl python3; do
    command -v $tool > /dev/null || { echo "this needs $tool" >&2; exit 2; }
done

# A certificate authority and a certificate for the site.
mkdir "$WORK/site"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=clients' origin" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign \
    -keyout "$WORK/ca.key" -out "$WORK/ca.pem" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=shop.example" \
    -keyout "$WORK/site/key.pem" -out "$WORK/site.csr" 2>/dev/null
printf '%s\n' subjectAltName=DNS:shop.example,DNS:slow.example,DNS:busy.example,IP:127.0.0.1 basicConstraints=CA:FALSE \
    extendedKeyUsage=serverAuth > "$WORK/site.ext"
openssl x509 -req -in "$WORK/site.csr" -CA "$WORK/ca.pem" -CAkey "$WORK/ca.key" -set_serial 1 -days 2 \
    -extfile "$WORK/site.ext" -out "$WORK/site/cert.pem" 2>/dev/null

python3 site.py "$WORK/site" &
SITE=$!
for _ in $(seq 600); do
    [ -s "$WORK/site/ports" ] && break
    sleep 0.05
done
read -r PLAIN_PORT TLS_PORT < "$WORK/site/ports" || { echo "the site did not start" >&2; exit 2; }
export PLAIN_PORT TLS_PORT

export POLITELY_EGRESS__CA_FILE=$WORK/ca.pem
# One authority for all.
export POLITELY_INTERCEPT__CA__DIRECTORY=$WORK/ca
# The environment of whoever tests is not for those that are tested.
unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
# With it rclone reads no bucket, whoever sets it.
unset AWS_CA_BUNDLE
