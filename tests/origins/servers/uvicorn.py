"""uvicorn with httptools."""

from servers import _python

PACKAGES = ["python3-venv"]
LACKS = _python.LACKS


def start(site):
    bin = site.venv("uvicorn", "httptools", "h11")
    for kind, more in (("http", []), ("tls", []), ("idle-http", ["--timeout-keep-alive", "1"])):
        tls = [] if kind.endswith("http") else ["--ssl-certfile", site.cert, "--ssl-keyfile", site.key]
        site.spawn([bin + "/uvicorn", "--log-level", "warning", "--port", str(site.port(kind)), "--http", "httptools", *tls, *more,
                    "asgi:app"], env=_python.environment(site))
