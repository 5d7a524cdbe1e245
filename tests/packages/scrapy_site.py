import scrapy


class Site(scrapy.Spider):
    name = "site"

    def __init__(self, urls, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split(",")

    async def start(self):
        assert not self.settings.getbool("ROBOTSTXT_OBEY") and not self.settings.getbool("AUTOTHROTTLE_ENABLED")
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response):
        self.logger.info("%s %s", response.status, response.url)
