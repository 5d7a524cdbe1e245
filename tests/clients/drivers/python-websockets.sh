# Python websockets
family='WebSocket and gRPC'
quick=yes
install() { pypi websockets; }
version() { pypi_version websockets; }
recipe fetch.py <<'END'
import sys
from websockets.sync.client import connect

for url in sys.argv[1:]:
    try:
        with connect(url.replace("http", "ws", 1)) as socket:
            print(url, socket.recv())
    except Exception as refused:
        print(url, refused)
END
fetch() {
    politely run python fetch.py "$@"
}
