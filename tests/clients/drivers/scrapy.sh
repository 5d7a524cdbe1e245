# Scrapy
#
# `DOWNLOAD_TIMEOUT`, and a middleware that waits for Retry-After: [Scrapy](scrapy.md).
family='Crawlers'
quick=yes
returns=yes
sees='/ /one.html /deep/three.html /script.js /image.svg /mapped.html'
install() { pypi scrapy; }
version() { pypi_version scrapy; }
recipe spider.py <<'END'
import asyncio
import scrapy


class KeepRetryAfter:
    async def process_response(self, request, response):
        if response.status == 429:
            await asyncio.sleep(int(response.headers.get("Retry-After", 1)))
        return response


class Site(scrapy.spiders.SitemapSpider):
    name = "site"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_TIMEOUT": 660,
        "RETRY_HTTP_CODES": [429, 500, 502, 503, 504],
        "RETRY_TIMES": 5,
        "DOWNLOADER_MIDDLEWARES": {KeepRetryAfter: 560},
    }

    def __init__(self, sites, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = sites.split(",")
        self.sitemap_urls = [site + "robots.txt" for site in self.start_urls]

    async def start(self):
        async for request in super().start():
            yield request
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response):
        if b"html" in response.headers.get("Content-Type", b""):
            for link in response.css("a::attr(href), img::attr(src), script::attr(src)").getall():
                yield response.follow(link)
END
crawl() {
    politely run scrapy runspider spider.py -a "sites=$(IFS=,; echo "$*")"
}
