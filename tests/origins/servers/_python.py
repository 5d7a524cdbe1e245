"""What the servers of Python applications share."""

import os

APPS = os.path.dirname(os.path.abspath(__file__)) + "/apps"
LACKS = {
    "file-gzip": "the application does not compress",
    "file-range*": "the application sends whole files",
    "trailers": "the interface has none",
    "request-trailers": "the interface has none",
    "hints": "the interface has none",
    "gzip": "the application has none",
    "cut": "the application has none",
    "broken": "the application has none",
    "close-delimited": "the application has none",
    "closed": "the application has none",
    "early": "the application reads bodies first",
    "limited": "the application reads bodies first",
}


def environment(site):
    return {**os.environ, "DOCROOT": site.root, "PYTHONPATH": APPS, "PYTHONDONTWRITEBYTECODE": "1"}
