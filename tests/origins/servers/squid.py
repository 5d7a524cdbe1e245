"""Squid as the accelerator of the application. Debian's speaks TLS in another package."""

PACKAGES = ["squid"]
LACKS = {
    "trailers": "it passes none on",
    "request-trailers": "it passes none on",
    "hints": "it passes none on",
    "file-gzip": "the application does not compress",
    "path *": "it writes paths its own way",
}


def start(site):
    config = site.write("squid.conf", f"""
http_port 127.0.0.1:{site.port("http")} accel defaultsite=a.localhost no-vhost
cache_peer 127.0.0.1 parent {site.backend} 0 no-query originserver name=app no-digest
acl limited urlpath_regex ^/app/limited
http_access deny limited
deny_info 413:ERR_TOO_BIG limited
http_access allow all
cache deny all
cache_effective_user proxy
pid_filename none
access_log none
cache_log stdio:/dev/null
cache_store_log none
coredump_dir {site.directory}
request_header_max_size 128 KB
reply_header_max_size 128 KB
visible_hostname a.localhost
shutdown_lifetime 1 seconds
pinger_enable off
""")
    site.spawn(["squid", "-N", "-f", config])
