# crawl4ai
#
# `page_timeout=660_000`.
family='Crawlers'
line="politely run python crawl.py URL…"
sees='/ /style.css /script.js /image.svg /data.json'
install() { debian chromium libnss3-tools; pypi crawl4ai; }
version() { pypi_version crawl4ai; }
recipe crawl.py <<'END'
import asyncio
import sys
from crawl4ai import AsyncWebCrawler, BrowserConfig, CacheMode, CrawlerRunConfig


async def main():
    run = CrawlerRunConfig(cache_mode=CacheMode.BYPASS, page_timeout=660_000, wait_until="networkidle")
    async with AsyncWebCrawler(config=BrowserConfig(cdp_url=sys.argv[1], verbose=False)) as crawler:
        for url in sys.argv[2:]:
            result = await crawler.arun(url, config=run)
            print(url, result.status_code, result.error_message)


asyncio.run(main())
END
# With Debian's Chromium instead of Playwright's.
recipe crawl.sh <<'END'
chromium --headless --no-sandbox --disable-background-networking --remote-debugging-port=0 --user-data-dir="$PWD/profile" about:blank &
until [ -s profile/DevToolsActivePort ]; do sleep 0.1; done
python crawl.py "http://127.0.0.1:$(sed -n 1p profile/DevToolsActivePort)" "$@"
kill $!
END
crawl() {
    politely run sh crawl.sh "$@"
}
