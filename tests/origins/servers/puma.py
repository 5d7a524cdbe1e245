"""Puma."""

import os

from servers import _python

PACKAGES = ["puma"]
LACKS = {**_python.LACKS, "fields-30k-request": "it takes 80 KB in all, and no more than it likes of one field"}


def start(site):
    app = os.path.join(_python.APPS, "config.ru")
    for kind in ("http", "tls"):
        at = f"127.0.0.1:{site.port(kind)}"
        bind = f"tcp://{at}" if kind == "http" else f"ssl://{at}?key={site.key}&cert={site.cert}&verify_mode=none"
        site.spawn(["puma", "--threads", "24:24", "--quiet", "--bind", bind, app], env=_python.environment(site))
