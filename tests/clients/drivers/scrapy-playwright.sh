# scrapy-playwright
#
# [browsers](browsers.md#scrapy-playwright)
family='Crawlers'
sees='/ /style.css /script.js /image.svg /data.json'
install() { debian chromium libnss3-tools; pypi scrapy-playwright; }
version() { pypi_version scrapy-playwright; }
recipe spider.py <<'END'
import scrapy


class Site(scrapy.Spider):
    name = "site"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_HANDLERS": {
            "http": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler",
            "https": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler",
        },
        "PLAYWRIGHT_LAUNCH_OPTIONS": {"executable_path": "/usr/bin/chromium", "args": ["--no-sandbox"]},
        "PLAYWRIGHT_DEFAULT_NAVIGATION_TIMEOUT": 660_000,
    }

    def __init__(self, sites, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = sites.split(",")

    async def start(self):
        for url in self.start_urls:
            yield scrapy.Request(url, meta={"playwright": True, "playwright_page_goto_kwargs": {"wait_until": "networkidle"}})

    def parse(self, response):
        print(response.url, response.status)
END
crawl() {
    politely run scrapy runspider spider.py -a "sites=$(IFS=,; echo "$*")"
}
