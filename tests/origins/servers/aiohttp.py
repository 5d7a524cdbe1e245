"""aiohttp's server."""

from servers import _python

PACKAGES = ["python3-venv"]
LACKS = _python.LACKS


def start(site):
    bin = site.venv("aiohttp")
    ports = [f"{kind}={site.port(kind)}" for kind in ("http", "tls", "idle-http", "idle-tls")]
    site.spawn([bin + "/python", _python.APPS + "/aiohttp_app.py", site.cert, site.key, *ports], env=_python.environment(site))
