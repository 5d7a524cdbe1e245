# Python requests
#
# `Retry(3, status_forcelist=[429, 503])` of urllib3 waits for as long as Retry-After says.
family=Python
quick=yes
returns=yes
install() { pypi requests; }
version() { pypi_version requests; }
recipe fetch.py <<'END'
import sys
import requests
from urllib3.util import Retry

session = requests.Session()
patient = requests.adapters.HTTPAdapter(max_retries=Retry(3, status_forcelist=[429, 503], raise_on_status=False))
session.mount("http://", patient)
session.mount("https://", patient)
for url in sys.argv[1:]:
    response = session.get(url)
    print(url, response.status_code, response.headers.get("Proxy-Status"))
END
fetch() {
    politely run python fetch.py "$@"
}
