"""nghttpd: files alone, over h2."""

PACKAGES = ["nghttp2-server"]
ONLY = ["file", "file-head", "file-large", "file-404", "file-304", "disallowed"]


def start(site):
    site.spawn(["nghttpd", "--htdocs=" + site.root, "--workers=1", "--address=127.0.0.1", str(site.port("h2")),
                site.key, site.cert])
