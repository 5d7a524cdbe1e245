# Python Tornado
#
# `CurlAsyncHTTPClient`, as the simple client takes no proxy, with `ca_certs` and `request_timeout=660`.
family=Python
quick=yes
install() { pypi tornado pycurl; }
version() { pypi_version tornado; }
recipe fetch.py <<'END'
import asyncio
import os
import sys
from tornado.httpclient import AsyncHTTPClient

AsyncHTTPClient.configure(
    "tornado.curl_httpclient.CurlAsyncHTTPClient",
    defaults={"ca_certs": os.environ["CURL_CA_BUNDLE"], "request_timeout": 660},
)


async def fetch(url):
    response = await AsyncHTTPClient().fetch(url, raise_error=False)
    print(url, response.code)


async def main():
    await asyncio.gather(*map(fetch, sys.argv[1:]))


asyncio.run(main())
END
fetch() {
    politely run python fetch.py "$@"
}
recipe bare.py <<'END2'
import asyncio, sys
from tornado.httpclient import AsyncHTTPClient
async def main():
    for url in sys.argv[1:]:
        try: await AsyncHTTPClient().fetch(url, validate_cert=False)
        except OSError as error: print(error)
asyncio.run(main())
END2
bare() {
    politely run python bare.py "$@"
}
