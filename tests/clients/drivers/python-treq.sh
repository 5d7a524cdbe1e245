# Python treq (Twisted)
#
# `HTTPClient(ProxyAgent(endpoint))`, for https too.
family=Python
quick=yes
install() { pypi treq; }
version() { pypi_version treq; }
recipe fetch.py <<'END'
import os
import sys
from urllib.parse import urlsplit
from treq.client import HTTPClient
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.task import react
from twisted.web.client import ProxyAgent


async def main(reactor, *urls):
    proxy = urlsplit(os.environ["https_proxy"])
    client = HTTPClient(ProxyAgent(HostnameEndpoint(reactor, proxy.hostname, proxy.port)))
    for url in urls:
        response = await client.get(url)
        print(url, response.code, len(await response.content()))


react(main, sys.argv[1:])
END
fetch() {
    politely run python fetch.py "$@"
}
recipe bare.py <<'END2'
import sys, treq
from twisted.internet.task import react
async def main(reactor, *urls):
    for url in urls:
        try: await treq.get(url)
        except Exception as error: print(error)
react(main, sys.argv[1:])
END2
bare() {
    politely run python bare.py "$@"
}
