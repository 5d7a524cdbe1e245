# Python httpx, HTTP/1.1 and HTTP/2
#
# `timeout=660`.
family=Python
quick=yes
install() { pypi 'httpx[http2]'; }
version() { pypi_version httpx; }
recipe fetch.py <<'END'
import sys
import httpx

for http2 in [False, True]:
    with httpx.Client(http2=http2, timeout=660) as client:
        for url in sys.argv[1:]:
            response = client.get(url)
            print(url, response.http_version, response.status_code, response.headers.get("Proxy-Status"))
END
fetch() {
    politely run python fetch.py "$@"
}
