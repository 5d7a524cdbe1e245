"""nginx: files by itself, the application by proxy_pass."""

PACKAGES = ["nginx"]
LACKS = {
    "trailers": "it passes none on",
    "hints": "it passes no 103 on",
}


def start(site):
    server = lambda kind, protocol, more="": f"""
    server {{
        listen 127.0.0.1:{site.port(kind)} {protocol};
        server_name a.localhost;
        root {site.root};
        {more}
        location = /old {{ return 301 /index.html; }}
        location /app/ {{ proxy_pass http://127.0.0.1:{site.backend}; }}
        location = /app/closed {{ return 444; }}
        location = /app/limited {{ client_max_body_size 1k; proxy_pass http://127.0.0.1:{site.backend}; }}
    }}"""
    few, one, idle = "keepalive_requests 3;", "http2_max_concurrent_streams 1;", "keepalive_timeout 1s;"
    config = site.write("nginx.conf", f"""
daemon off; worker_processes 1; pid {site.path("nginx.pid")}; error_log stderr warn; user root;
events {{ worker_connections 512; }}
http {{
    access_log off;
    types {{ text/html html; text/plain txt; }}
    gzip on; gzip_types text/plain; gzip_proxied any;
    client_max_body_size 64m;
    large_client_header_buffers 8 64k;
    proxy_http_version 1.1; proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 64k;
    proxy_set_header Host $http_host; proxy_set_header Connection "";
    client_body_temp_path {site.path("body")}; proxy_temp_path {site.path("proxy")};
    fastcgi_temp_path {site.path("fastcgi")}; uwsgi_temp_path {site.path("uwsgi")}; scgi_temp_path {site.path("scgi")};
    ssl_certificate {site.cert}; ssl_certificate_key {site.key};
    {server("http", "")} {server("tls", "ssl")} {server("h2", "ssl http2")}
    {server("few-http", "", few)} {server("few-tls", "ssl", few)} {server("few-h2", "ssl http2", few)}
    {server("one-h2", "ssl http2", one)}
    {server("idle-http", "", idle)} {server("idle-tls", "ssl", idle)} {server("idle-h2", "ssl http2", idle)}
}}
""")
    site.spawn(["nginx", "-c", config, "-p", site.directory])
