# Python aiohttp
#
# `ClientSession(trust_env=True, timeout=ClientTimeout(total=None))`.
family=Python
install() { pypi aiohttp; }
version() { pypi_version aiohttp; }
recipe fetch.py <<'END'
import asyncio
import sys
import aiohttp


async def main():
    async with aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=None)) as session:
        for url in sys.argv[1:]:
            async with session.get(url) as response:
                print(url, response.status, response.headers.get("Proxy-Status"))


asyncio.run(main())
END
fetch() {
    politely run python fetch.py "$@"
}
recipe bare.py <<'END2'
import asyncio, sys, aiohttp
async def main():
    async with aiohttp.ClientSession() as session:
        for url in sys.argv[1:]:
            try: await session.get(url, ssl=False)
            except OSError as error: print(error)
asyncio.run(main())
END2
bare() {
    politely run python bare.py "$@"
}
