"""HAProxy before the application, which serves the files as well."""

PACKAGES = ["haproxy"]
LACKS = {"file-gzip": "the application does not compress"}


def start(site):
    bind = {
        "http": "",
        "tls": f"ssl crt {site.both} alpn http/1.1",
        "h2": f"ssl crt {site.both} alpn h2,http/1.1",
    }
    frontend = lambda kind, more="": f"""
frontend {kind}
    bind 127.0.0.1:{site.port(kind)} {bind[kind.split("-")[-1]]}
    {more}
    http-request reject if {{ path /app/closed }}
    http-request deny deny_status 413 if {{ path /app/limited }}
    default_backend app
"""
    idle = "timeout http-keep-alive 1s\n    timeout client 1s"
    for name, tuning, kinds in (
        ("all", "", "".join(map(frontend, ("http", "tls", "h2"))) + "".join(frontend(kind, idle) for kind in ("idle-http", "idle-h2"))),
        ("one", "tune.h2.max-concurrent-streams 1", frontend("one-h2")),
    ):
        config = site.write(f"haproxy-{name}.cfg", f"""
global
    tune.bufsize 65536
    tune.maxrewrite 4096
    tune.http.maxhdr 200
    ssl-default-bind-options ssl-min-ver TLSv1.2
    {tuning}
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    timeout http-keep-alive 30s
    # As it is, for it is the application that judges them.
    option accept-invalid-http-request
backend app
    http-reuse safe
    server one 127.0.0.1:{site.backend}
{kinds}
""")
        site.spawn(["haproxy", "-db", "-f", config])
