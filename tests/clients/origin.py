#!/usr/bin/env python3
"""A small site on loopback, over http and https, that logs every request it gets.

usage: origin.py DIRECTORY    (holds cert.pem and key.pem; `ports` and `log` are written there)

`ports` holds one line, "HTTP HTTPS"; it appears when both listen. Each line of `log` is "SCHEME METHOD TARGET AGENT WAY", WAY being
`via` for what came through a proxy, else `direct`.
"""

import http.server
import os
import socketserver
import ssl
import sys
import threading

ROBOTS = """\
User-agent: *
Disallow: /private/
Disallow: /*.secret$
"""

INDEX = """<!doctype html><html><head><title>index</title>
<link rel="stylesheet" href="/style.css"><link rel="stylesheet" href="/private/style.css">
<script src="/script.js"></script><script src="/private/script.js"></script></head>
<body><a href="/one.html">one</a> <a href="/private/two.html">two</a> <a href="/deep/three.html">three</a>
<a href="/four.secret">four</a> <img src="/image.svg"> <img src="/private/image.svg">
<a href="/public/../private/five.html">five</a> <a href="/%70rivate/six.html">six</a></body></html>
"""

PAGES = {
    "/": ("text/html", INDEX),
    "/one.html": ("text/html", '<a href="/private/seven.html">seven</a> <a href="/">back</a>'),
    "/deep/three.html": ("text/html", '<a href="../one.html">one</a> <a href="../private/eight.html">eight</a>'),
    "/style.css": ("text/css", "body { background: url(/private/background.svg) }"),
    "/script.js": ("text/javascript", "fetch('/data.json'); fetch('/private/data.json');"),
    "/data.json": ("application/json", "{}"),
    "/image.svg": ("image/svg+xml", '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'),
    "/robots.txt": ("text/plain", ROBOTS),
}

log_lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        scheme = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
        with log_lock, open("log", "a") as log:
            agent, way = self.headers.get("User-Agent", "-"), "via" if "Via" in self.headers else "direct"
            log.write(f"{scheme} {self.command} {self.path} {agent} {way}\n")
        kind, body = PAGES.get(self.path, ("text/plain", f"page {self.path}"))
        body = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    context = None

    def finish_request(self, request, client_address):
        # Here and not in accept(), so that a slow handshake holds up only its own thread.
        if self.context:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass


os.chdir(sys.argv[1])
open("log", "w").close()
plain, tls = Server(("127.0.0.1", 0), Handler), Server(("127.0.0.1", 0), Handler)
tls.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.context.load_cert_chain("cert.pem", "key.pem")
threading.Thread(target=tls.serve_forever, daemon=True).start()
with open("ports.new", "w") as ports:
    ports.write(f"{plain.server_port} {tls.server_port}\n")
os.rename("ports.new", "ports")
plain.serve_forever()
