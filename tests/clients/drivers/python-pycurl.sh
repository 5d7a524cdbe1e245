# Python pycurl
#
# `curl.setopt(pycurl.CAINFO, os.environ["CURL_CA_BUNDLE"])`.
family=Python
install() { pypi pycurl; }
version() { pypi_version pycurl; }
recipe fetch.py <<'END'
import os
import sys
import pycurl

for url in sys.argv[1:]:
    curl = pycurl.Curl()
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.CAINFO, os.environ["CURL_CA_BUNDLE"])
    curl.setopt(pycurl.WRITEFUNCTION, lambda body: None)
    curl.perform()
    print(url, curl.getinfo(pycurl.RESPONSE_CODE))
END
fetch() {
    politely run python fetch.py "$@"
}
