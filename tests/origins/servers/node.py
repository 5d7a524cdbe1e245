"""Node, by its own http, https and http2."""

import os

PACKAGES = ["nodejs"]
LACKS = {"file-gzip": "the application does not compress"}


def start(site):
    kinds = ["http", "tls", "h2", "few-http", "few-tls", "few-h2", "one-h2", "idle-http", "idle-tls", "idle-h2"]
    ports = [f"{kind}={site.port(kind)}" for kind in kinds]
    here = os.path.dirname(os.path.abspath(__file__))
    site.spawn(["node", here + "/apps/node.mjs", site.root, site.cert, site.key, *ports])
