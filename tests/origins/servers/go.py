"""Go's net/http."""

import os

PACKAGES = ["golang-go"]
LACKS = {"file-gzip": "the application does not compress", "gzip": "the application has none"}


def start(site):
    source = os.path.dirname(os.path.abspath(__file__)) + "/apps/go.go"
    kinds = ["http", "tls", "h2", "idle-http", "idle-h2"]
    cache = {"GOCACHE": os.path.realpath(os.path.dirname(source) + "/../../../../target/origins/go"), "GOFLAGS": "-mod=mod"}
    site.spawn(["go", "run", source, site.root, site.cert, site.key, *(f"{kind}={site.port(kind)}" for kind in kinds)],
               env={**os.environ, **cache, "HOME": site.directory})
