"""Caddy: files by itself, the application by reverse_proxy."""

PACKAGES = ["caddy"]
LACKS = {}


def start(site):
    def listener(kind, protocols):
        scheme = "http" if kind.endswith("http") else "https"
        tls = f"tls {site.cert} {site.key}" if scheme == "https" else ""
        return f"""
{scheme}://a.localhost:{site.port(kind)} {{
    bind 127.0.0.1
    {tls}
    root * {site.root}
    redir /old /index.html 301
    encode gzip
    @limited path /app/limited
    request_body @limited {{
        max_size 1KB
    }}
    reverse_proxy /app/* 127.0.0.1:{site.backend}
    file_server
}}"""

    for name, protocols, kinds, more in (
        ("h1", "h1", ("http", "tls"), ""),
        ("h2", "h1 h2", ("h2",), ""),
        ("idle", "h1 h2", ("idle-http", "idle-h2"), "timeouts {\n idle 1s\n }"),
    ):
        config = site.write(f"Caddyfile-{name}", f"""
{{
    admin off
    auto_https off
    storage file_system {site.path("caddy")}
    servers {{
        protocols {protocols}
        {more}
    }}
}}
""" + "".join(listener(kind, protocols) for kind in kinds))
        site.spawn(["caddy", "run", "--adapter", "caddyfile", "--config", config], env={"HOME": site.directory, "PATH": "/usr/bin:/bin"})
