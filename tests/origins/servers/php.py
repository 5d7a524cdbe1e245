"""PHP's own server."""

from servers import _python

PACKAGES = ["php-cli"]
LACKS = {
    **_python.LACKS,
    "fields-30k-request": "it takes 8 KiB a field",
    "file-delete": "it answers every method",
    "file-options": "it answers every method",
    "path *": "it says them its own way",
    "fifty": "it ends each connection",
}


def start(site):
    site.spawn(["php", "-S", f"127.0.0.1:{site.port('http')}", "-t", site.root, _python.APPS + "/router.php"],
               env={**_python.environment(site), "PHP_CLI_SERVER_WORKERS": "24"})
