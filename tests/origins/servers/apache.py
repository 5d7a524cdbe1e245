"""Apache httpd: files by itself, the application by mod_proxy."""

import os

PACKAGES = ["apache2"]
MODULES = "/usr/lib/apache2/modules"
LACKS = {
    "trailers": "mod_proxy passes none on",
    "request-trailers": "mod_proxy passes none on",
    "hints": "mod_proxy drops 103 unless it is told otherwise",
}


# Which filters an answer went through shows by chance.
IGNORE = {"vary"}


def start(site):
    load = "\n".join(f"LoadModule {name}_module {MODULES}/mod_{name}.so" for name in (
        "mpm_event authz_core mime dir alias headers deflate filter proxy proxy_http ssl http2 socache_shmcb rewrite"
    ).split())
    tls = f"SSLEngine on\nSSLCertificateFile {site.cert}\nSSLCertificateKeyFile {site.key}"
    h1, h2 = "Protocols http/1.1", "Protocols h2 http/1.1"
    host = lambda kind, *more: "Listen 127.0.0.1:{0}\n<VirtualHost 127.0.0.1:{0}>\n{1}\n</VirtualHost>\n".format(
        site.port(kind), "\n".join(more))
    few, one, idle = "MaxKeepAliveRequests 3", "H2MaxSessionStreams 1", "KeepAliveTimeout 1"
    user = "User www-data\nGroup www-data" if os.getuid() == 0 else ""
    config = site.write("apache.conf", f"""
{load}
ServerRoot {site.directory}
ServerName a.localhost
PidFile {site.path("apache.pid")}
DefaultRuntimeDir {site.directory}
ErrorLog /dev/stderr
Mutex pthread
{user}
TypesConfig /dev/null
AddType text/html html
AddType text/plain txt
DocumentRoot {site.root}
<Directory {site.root}>
    Require all granted
</Directory>
AddOutputFilterByType DEFLATE text/html text/plain
LimitRequestFieldSize 65536
LimitRequestLine 65536
Redirect 301 /old /index.html
ProxyPreserveHost on
Redirect 413 /app/limited
ProxyPass /app/limited !
ProxyPass /app/ http://127.0.0.1:{site.backend}/app/ nocanon responsefieldsize=65536
{host("http", h1)} {host("tls", tls, h1)} {host("h2", tls, h2)}
{host("few-http", few, h1)} {host("few-tls", few, tls, h1)} {host("few-h2", few, tls, h2)}
{host("one-h2", one, tls, h2)}
{host("idle-http", idle, h1)} {host("idle-tls", idle, tls, h1)} {host("idle-h2", idle, tls, h2)}
""")
    site.spawn(["apache2", "-f", config, "-DFOREGROUND"])
