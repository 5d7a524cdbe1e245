"""gunicorn with threads."""

from servers import _python

PACKAGES = ["python3-venv"]
LACKS = {**_python.LACKS, "fields-30k-request": "it takes 8 KiB a field"}


def start(site):
    bin = site.venv("gunicorn")
    for kind, more in (("http", []), ("tls", []), ("idle-http", ["--keep-alive", "1"])):
        tls = [] if kind.endswith("http") else ["--certfile", site.cert, "--keyfile", site.key]
        site.spawn([bin + "/gunicorn", "--threads", "24", "--log-level", "warning", "--bind", f"127.0.0.1:{site.port(kind)}", *tls, *more,
                    "wsgi:app"], env=_python.environment(site))
