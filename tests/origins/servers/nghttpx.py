"""nghttpx, nghttp2's proxy, before the application."""

PACKAGES = ["nghttp2-proxy"]
LACKS = {"file-gzip": "the application does not compress", "limited": "it limits no bodies"}


def start(site):
    common = ["--workers=1", f"--backend=127.0.0.1,{site.backend}", "--log-level=WARN", "--no-ocsp", "--conf=/dev/null",
              "--request-header-field-buffer=128K", "--max-request-header-fields=200", "--no-location-rewrite",
              "--response-header-field-buffer=128K", "--max-response-header-fields=200"]
    for kind, more in (
        ("http", []), ("tls", ["--npn-list=http/1.1"]), ("h2", []),
        ("one-h2", ["--frontend-http2-max-concurrent-streams=1"]),
        ("idle-http", ["--frontend-keep-alive-timeout=1s"]), ("idle-h2", ["--frontend-http2-read-timeout=1s"]),
    ):
        plain = kind.endswith("http")
        tls = [] if plain else [site.key, site.cert]
        site.spawn(["nghttpx", *common, *more, f"--frontend=127.0.0.1,{site.port(kind)}{';no-tls' if plain else ''}", *tls])
