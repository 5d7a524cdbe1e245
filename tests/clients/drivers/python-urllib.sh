# Python urllib
family=Python
install() { pypi pip; }
version() { python --version | sed 's/Python //'; }
recipe fetch.py <<'END'
import sys
import urllib.error
import urllib.request

for url in sys.argv[1:]:
    try:
        print(url, urllib.request.urlopen(url).status)
    except urllib.error.HTTPError as refused:
        print(url, refused.code, refused.headers["Proxy-Status"])
END
fetch() {
    politely run python fetch.py "$@"
}
