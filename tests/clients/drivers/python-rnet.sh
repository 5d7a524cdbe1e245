# Python rnet
#
# `verify=os.environ["SSL_CERT_FILE"]`.
family=Python
quick=yes
install() { pypi rnet; }
version() { pypi_version rnet; }
recipe fetch.py <<'END'
import asyncio
import os
import sys
from rnet import Client, Impersonate


async def main():
    client = Client(impersonate=Impersonate.Chrome137, verify=os.environ["SSL_CERT_FILE"])
    for url in sys.argv[1:]:
        response = await client.get(url)
        print(url, response.status_code)


asyncio.run(main())
END
fetch() {
    politely run python fetch.py "$@"
}
