"""Keeps all that it gets: `scrapy runspider spider.py -a sites=URL,URL -a out=DIRECTORY`."""

import pathlib
import urllib.parse

import scrapy


class Site(scrapy.Spider):
    name = "site"
    custom_settings = {"ROBOTSTXT_OBEY": False, "TELNETCONSOLE_ENABLED": False, "LOG_LEVEL": "WARNING"}

    async def start(self):
        for url in self.sites.split(","):
            yield scrapy.Request(url + "/")

    def parse(self, response):
        url = urllib.parse.urlsplit(response.url)
        file = pathlib.Path(self.out, url.netloc, url.path.lstrip("/") or "index.html")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(response.body)
        if url.path == "/":
            for link in response.css("a::attr(href), img::attr(src)").getall():
                yield response.follow(link)
