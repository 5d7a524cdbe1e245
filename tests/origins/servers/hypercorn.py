"""Hypercorn, which speaks h2 with hyper-h2."""

from servers import _python

PACKAGES = ["python3-venv"]
LACKS = {**_python.LACKS, "fields-30k*": "it takes 16 KiB"}
# It names the library, which is another for each version; an odd path goes over HTTP/1.1.
IGNORE = {"server"}


def start(site):
    bin = site.venv("hypercorn")
    for kind in ("http", "h2", "idle-h2"):
        bind = ["--bind", f"127.0.0.1:{site.port(kind)}"]
        tls = [] if kind.endswith("http") else ["--certfile", site.cert, "--keyfile", site.key]
        more = ["--keep-alive", "1"] if kind.startswith("idle") else []
        site.spawn([bin + "/hypercorn", "--log-level", "warning", *bind, *tls, *more, "asgi:app"], env=_python.environment(site))
