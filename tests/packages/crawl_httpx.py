"""Asks for each URL with httpx, the first half in turn, the rest all at once."""

import asyncio
import sys

import politely
from politely.httpx import async_client, client


async def at_once(urls):
    async with async_client(proxy) as crawler:
        for answer in await asyncio.gather(*map(crawler.get, urls)):
            print(answer.status_code, answer.url)


with politely.Proxy("-v") as proxy:
    half = len(sys.argv) // 2
    with client(proxy) as crawler:
        for url in sys.argv[1:half]:
            print(crawler.get(url).status_code, url)
    asyncio.run(at_once(sys.argv[half:]))
