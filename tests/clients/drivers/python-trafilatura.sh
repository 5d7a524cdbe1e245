# Python trafilatura
#
# `extract(requests.get(url).text)`: `fetch_url` takes a proxy only if pycurl is installed.
family=Python
quick=yes
install() { pypi trafilatura lxml_html_clean requests; }
version() { pypi_version trafilatura; }
recipe fetch.py <<'END'
import sys
import requests
from trafilatura import extract

for url in sys.argv[1:]:
    response = requests.get(url)
    print(url, response.status_code, extract(response.text))
END
fetch() {
    politely run python fetch.py "$@"
}
recipe bare.py <<'END2'
import sys
sys.modules["pycurl"] = None
from trafilatura.downloads import fetch_url
from trafilatura.settings import use_config
config = use_config()
config["DEFAULT"]["SSRF_PROTECTION"] = "off"
for url in sys.argv[1:]:
    fetch_url(url, no_ssl=True, config=config)
END2
bare() {
    politely run python bare.py "$@"
}
