"""Asks for each URL with requests, through the process's own proxy."""

import sys

from politely.requests import session

crawler = session()
for url in sys.argv[1:]:
    print(crawler.get(url).status_code, url)
