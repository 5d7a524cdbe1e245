"""Scrapy through politely: an add-on. At the end of settings.py, in place of `ADDONS = {}`, CONCURRENT_REQUESTS_PER_DOMAIN and DOWNLOAD_DELAY:

    ADDONS = {"politely.scrapy.Addon": 500}
    POLITELY_OPTIONS = ["--product-token", "ExampleBot"]  # options of `politely run`; may be left out

or, for a proxy that runs already, POLITELY_PROXY (its URL) and POLITELY_CA_FILE (what `politely ca path` prints).
"""

import os
import shlex

import politely


class Addon:
    def update_settings(self, settings):
        url = settings.get("POLITELY_PROXY")
        if url:
            variables = {"http_proxy": url, "https_proxy": url}
            if settings.get("POLITELY_CA_FILE"):
                variables["SSL_CERT_FILE"] = settings["POLITELY_CA_FILE"]
        else:
            options = settings.get("POLITELY_OPTIONS") or []
            options = shlex.split(options) if isinstance(options, str) else options
            variables = politely.shared(*options).environment
        # Scrapy's HttpProxyMiddleware and OpenSSL read it, and so do browsers and other programs that a spider starts.
        os.environ.update(variables)
        # The proxy obeys robots.txt: Scrapy would fetch each again, and read it by rules of its own.
        settings.set("ROBOTSTXT_OBEY", False, "project")
        # What waits in the proxy for its turn would look like a slow site, and be slowed down twice.
        settings.set("AUTOTHROTTLE_ENABLED", False, "project")
        settings.set("DOWNLOAD_TIMEOUT", politely.TIMEOUT, "addon")
