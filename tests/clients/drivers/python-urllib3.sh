# Python urllib3
#
# `ProxyManager(os.environ["https_proxy"])`.
family=Python
returns=yes
install() { pypi urllib3; }
version() { pypi_version urllib3; }
recipe fetch.py <<'END'
import os
import sys
import urllib3

pool = urllib3.ProxyManager(os.environ["https_proxy"], retries=urllib3.Retry(3, status_forcelist=[429, 503], raise_on_status=False))
for url in sys.argv[1:]:
    print(url, pool.request("GET", url).status)
END
fetch() {
    politely run python fetch.py "$@"
}
bare() {
    politely run python -c 'import sys, urllib3; [urllib3.PoolManager(cert_reqs="CERT_NONE").request("GET", url, retries=False) for url in sys.argv[1:]]' "$@"
}
