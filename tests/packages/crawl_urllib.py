"""Asks for each URL through a proxy of its own, with the standard library."""

import os
import sys
import urllib.error
import urllib.request

import politely

with politely.Proxy("-v") as proxy:
    os.environ.update(proxy.environment)
    for url in sys.argv[1:]:
        try:
            with urllib.request.urlopen(url) as answer:
                print(answer.status, url)
        except urllib.error.HTTPError as error:
            print(error.code, url)
