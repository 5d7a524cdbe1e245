"""Keeps the pages that crawl4ai gets: `crawl4ai_pages.py DIRECTORY URL…`. Debian's Chromium is its browser."""

import asyncio
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse

from crawl4ai import AsyncWebCrawler, BrowserConfig, CacheMode, CrawlerRunConfig


async def crawl(out, urls, browser):
    config = CrawlerRunConfig(cache_mode=CacheMode.BYPASS, page_timeout=60_000, check_robots_txt=False)
    async with AsyncWebCrawler(config=BrowserConfig(cdp_url=browser, verbose=False)) as crawler:
        for url in urls:
            result = await crawler.arun(url, config=config)
            print(url, result.status_code, result.error_message or "")
            if result.success and result.status_code == 200:
                parts = urllib.parse.urlsplit(url)
                file = pathlib.Path(out, parts.netloc, parts.path.lstrip("/"))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(result.html)


def main(out, *urls):
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-background-networking", "--remote-debugging-port=0",
                   f"--user-data-dir={profile}", "about:blank"]
        browser = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            port = pathlib.Path(profile, "DevToolsActivePort")
            for _ in range(300):
                if port.exists() and port.read_text():
                    break
                time.sleep(0.1)
            asyncio.run(crawl(out, urls, f"http://127.0.0.1:{port.read_text().splitlines()[0]}"))
        finally:
            browser.terminate()
            browser.wait(30)


if __name__ == "__main__":
    main(*sys.argv[1:])
