"""lighttpd: files by itself, the application by mod_proxy."""

PACKAGES = ["lighttpd", "lighttpd-mod-openssl"]
LACKS = {
    "request-trailers": "it passes none on",
    # Over HTTP/2 the whole connection ends of it, with what others have on it.
    "trailers": "1.4.69 writes them into its head and ends that with CR CR LF, which is malformed",
    "limited": "bodies are limited for all of it or not at all",
    "hints": "mod_proxy drops 103",
}
# These it says by how much of an answer it has at the time.
IGNORE = {"accept-ranges", "content-length"}


def start(site):
    tls = f'ssl.engine = "enable"\nssl.pemfile = "{site.cert}"\nssl.privkey = "{site.key}"'
    server = lambda kind, *more: '$SERVER["socket"] == "127.0.0.1:{0}" {{ {1} }}'.format(site.port(kind), "\n".join(more))
    common = lambda h2: f"""
server.modules = ("mod_access", "mod_redirect", "mod_proxy", "mod_deflate", "mod_openssl")
server.document-root = "{site.root}"
server.errorlog = "{site.path("lighttpd.log")}"
server.feature-flags = ("server.h2proto" => "{h2}", "server.h2c" => "disable")
server.max-request-field-size = 65535
server.stream-response-body = 1
index-file.names = ("index.html")
mimetype.assign = (".html" => "text/html", ".txt" => "text/plain")
deflate.mimetypes = ("text/html", "text/plain")
deflate.allowed-encodings = ("gzip")
url.redirect = ("^/old$" => "/index.html")
url.redirect-code = 301
$HTTP["url"] =~ "^/app/" {{
    proxy.server = ("" => (("host" => "127.0.0.1", "port" => {site.backend})))
    proxy.header = ("https-remap" => "disable")
}}
"""
    # What HTTP/2 is offered for, and how much a body may hold, are said for the whole process.
    for name, h2, kinds in (
        ("h1", "disable", [("http", []), ("tls", [tls])]),
        ("h2", "enable", [("h2", [tls])]),
        ("few", "disable", [("few-http", []), ("few-tls", [tls])]),
        ("idle", "enable", [("idle-http", []), ("idle-h2", [tls])]),
    ):
        more = {"few": "server.max-keep-alive-requests = 3\n", "idle": "server.max-keep-alive-idle = 1\n"}.get(name, "")
        ports = "\n".join(server(kind, *words) for kind, words in kinds)
        site.spawn(["lighttpd", "-D", "-f", site.write(f"lighttpd-{name}.conf", common(h2) + more + first(site, kinds) + ports)])


def first(site, kinds):
    """The main listener; another than those below would take a port of its own."""
    return f'server.bind = "127.0.0.1"\nserver.port = {site.port(kinds[0][0])}\n'
