# gRPC (Python grpcio)
#
# Over TLS: CONNECT and HTTP/2.
family='WebSocket and gRPC'
schemes=https
install() { pypi grpcio; }
version() { pypi_version grpcio; }
recipe fetch.py <<'END'
import sys
import urllib.parse
import grpc

for url in sys.argv[1:]:
    where = urllib.parse.urlsplit(url)
    channel = grpc.secure_channel(where.hostname, grpc.ssl_channel_credentials())
    try:
        print(url, channel.unary_unary(where.path)(b"hello"))
    except grpc.RpcError as refused:
        print(url, refused.code(), refused.details())
END
fetch() {
    politely run python fetch.py "$@"
}
