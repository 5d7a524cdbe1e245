#!/usr/bin/env python3
"""A small site on loopback that logs every request it gets: what a client is judged by.

usage: site.py DIRECTORY    (holds cert.pem and key.pem; `ports` and `log` are written there)

`ports` holds one line, "HTTP HTTPS"; it appears when both listen. The first is a proxy too, to which every name is this site, by
http and https: so that clients ask for what looks like the world outside. Each line of `log` is "TIME SCHEME METHOD URL AGENT WAY",
tab between: TIME the seconds at which the kernel had the first bytes of the request, WAY `via` for what came through politely,
`own` for politely's own, else `direct`.
"""

import base64
import hashlib
import http.server
import os
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time

DELAYS = {"slow.example": 1, "busy.example": 3}
ROBOTS = """\
User-agent: *
Disallow: /private/
Disallow: /*.secret$
{delay}
Sitemap: {site}/sitemap.xml
"""
SITEMAP = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>{site}/mapped.html</loc></url><url><loc>{site}/private/mapped.html</loc></url></urlset>
"""
INDEX = """<!doctype html><html><head><title>index</title>
<link rel="stylesheet" href="/style.css"><link rel="stylesheet" href="/private/style.css">
<script src="/script.js"></script><script src="/private/script.js"></script></head>
<body><a href="/one.html">one</a> <a href="/private/two.html">two</a> <a href="/deep/three.html">three</a>
<a href="/four.secret">four</a> <img src="/image.svg"> <img src="/private/image.svg">
<a href="/public/../private/five.html">five</a> <a href="/%70rivate/six.html">six</a></body></html>
"""
LINKS = """<!doctype html><title>slow</title><a href="/1">1</a> <a href="/2">2</a> <img src="/1"> <img src="/2">
<a href="/private/3">3</a>"""
FOLDER = """<multistatus xmlns="DAV:"><response><href>{path}</href><propstat><prop><resourcetype><collection/></resourcetype></prop>
<status>HTTP/1.1 200 OK</status></propstat></response></multistatus>"""
PAGES = {
    "/": ("text/html", INDEX),
    "/one.html": ("text/html", '<a href="/private/seven.html">seven</a> <a href="/">back</a>'),
    "/deep/three.html": ("text/html", '<a href="../one.html">one</a> <a href="../private/eight.html">eight</a>'),
    "/style.css": ("text/css", "body { background: url(/private/background.svg) }"),
    "/script.js": ("text/javascript", "for (const url of ['/data.json', '/private/data.json']) fetch(url).then((answer) => answer.text())"),
    "/data.json": ("application/json", "{}"),
    "/image.svg": ("image/svg+xml", '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'),
    "/sitemap.xml": ("application/xml", SITEMAP),
    "/robots.txt": ("text/plain", ROBOTS),
}
log_lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    arrived = 0.0

    def setup(self):
        self.request.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        super().setup()

    def handle_one_request(self):
        # Looked at, not taken; Python's TLS sockets refuse this, their sockets do not.
        _, notes, _, _ = socket.socket.recvmsg(self.connection, 1, 64, socket.MSG_PEEK)
        self.arrived = time.time()
        for level, kind, data in notes:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = struct.unpack("qq", data)
                self.arrived = seconds + nanoseconds / 1e9
        super().handle_one_request()

    def do_CONNECT(self):
        if not self.path.rpartition(":")[0].endswith(".example"):
            return self.send_error(502)  # A browser's own errands.
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        inside = self.connection
        if self.path.endswith(":443"):
            inside = context.wrap_socket(inside, server_side=True)
        Handler(inside, self.client_address, self.server)
        inside.close()

    def do_GET(self):
        self.read_body()
        if self.path.startswith("http://") and not self.headers.get("Host", "").endswith((".example", f":{plain.server_port}")):
            return self.send_error(502)
        scheme = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
        path = self.path.removeprefix("http://")
        path = path if path is self.path else "/" + path.partition("/")[2]
        host = self.headers.get("Host", "-").lower()
        site = f"{scheme}://{host}"
        agent = self.headers.get("User-Agent", "-")
        way = "own" if agent.startswith("politely/") else "via" if "Via" in self.headers else "direct"
        with log_lock, open("log", "a") as log:
            log.write("\t".join([f"{self.arrived:.4f}", scheme, self.command, site + path, agent, way]) + "\n")
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.websocket()
        if self.headers.get("Content-Type", "") == "application/grpc":
            return self.grpc()
        kind, body = PAGES.get(path.partition("?")[0], ("text/plain", f"page {path}"))
        if path == "/" and host in DELAYS:
            body = LINKS
        if kind.startswith("application/xml") or path == "/robots.txt":
            delay = f"Crawl-delay: {DELAYS[host]}" if host in DELAYS else ""
            body = body.format(site=site, delay=delay)
        if self.command == "PROPFIND":
            kind, body = "application/xml", FOLDER.format(path=path)
        body = body.encode()
        self.send_response(207 if self.command == "PROPFIND" else 200)
        if self.command == "OPTIONS":
            self.send_header("DAV", "1")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_POST = do_OPTIONS = do_PROPFIND = do_GET

    def read_body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return
        while size := int(self.rfile.readline(), 16):
            self.rfile.read(size + 2)
        while self.rfile.readline().strip():
            pass

    def grpc(self):
        """One message, `hello`, and how it ended: as in HTTP/2, with the trailers of HTTP/1.1."""
        self.send_response(200)
        for name, value in [("Content-Type", "application/grpc"), ("Transfer-Encoding", "chunked"), ("Trailer", "grpc-status")]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"a\r\n\0\0\0\0\5hello\r\n0\r\ngrpc-status: 0\r\n\r\n")

    def websocket(self):
        """One message, `hello`, and the end (RFC 6455)."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.wfile.write(b"\x81\x05hello\x88\x02\x03\xe8")
        self.rfile.read(1)
        self.close_connection = True

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128
    is_tls = False

    def finish_request(self, request, client_address):
        # Here and not in accept(), so that a slow handshake holds up only its own thread.
        if self.is_tls:
            request = context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass


SO_TIMESTAMPNS = 35  # Linux's number, of which Python knows nothing.

os.chdir(sys.argv[1])
open("log", "w").close()
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
plain, tls = Server(("127.0.0.1", 0), Handler), Server(("127.0.0.1", 0), Handler)
tls.is_tls = True
threading.Thread(target=tls.serve_forever, daemon=True).start()
with open("ports.new", "w") as ports:
    ports.write(f"{plain.server_port} {tls.server_port}\n")
os.rename("ports.new", "ports")
plain.serve_forever()
