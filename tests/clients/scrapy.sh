#!/usr/bin/env bash
# A Scrapy crawl with ROBOTSTXT_OBEY off.
# usage: scrapy.sh BINARY
. "$(dirname "$0")/lib.sh"
VENV=$CACHE/scrapy
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
"$VENV/bin/python" -c 'import scrapy' 2>/dev/null || "$VENV/bin/pip" install -q scrapy
cat > "$WORK/spider.py" <<'PYTHON'
import scrapy


class Site(scrapy.Spider):
    name = "site"
    custom_settings = {"ROBOTSTXT_OBEY": False, "LOG_LEVEL": "INFO", "TELNETCONSOLE_ENABLED": False, "RETRY_ENABLED": False}
    handle_httpstatus_list = [403]

    def __init__(self, sites, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [site + "/" for site in sites.split(",")]

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
        if response.status == 200 and b"text/html" in response.headers.get("Content-Type", b""):
            for link in response.css("a::attr(href), img::attr(src), script::attr(src)").getall():
                yield response.follow(link)
PYTHON
politely "$VENV/bin/scrapy" runspider "$WORK/spider.py" -a "sites=$PLAIN,$TLS" -O "$WORK/items.jsonl" || fail "scrapy ended in an error"
grep -q '"status": 403' "$WORK/items.jsonl" || fail "the spider saw no refusal"
seen / /one.html /deep/three.html /script.js /image.svg
nothing_disallowed
