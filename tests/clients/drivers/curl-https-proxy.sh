# curl, by a proxy with TLS
#
# A listener with `tls`. `--proxy-cacert` only if its certificate is not from a public authority.
family='Command line'
line='curl --proxy https://proxy:3128 --proxy-cacert proxy.pem --cacert "$(politely ca path)" URL'
service=yes
install() { debian curl; }
version() { curl --version | sed -n '1s/curl \([^ ]*\).*/\1/p'; }
recipe politely.yaml <<'END'
listen:
  - { address: 127.0.0.1:3128, tls: { certificate: proxy.pem, key: proxy.key } }
END
fetch() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -keyout proxy.key -out proxy.pem 2>/dev/null
    politely serve --config politely.yaml
    for http in --http1.1 --http2; do
        curl -sS "$http" --proxy https://localhost:"$port" --proxy-cacert proxy.pem --cacert "$(politely ca path)" --remote-name-all "$@"
    done
}
