"""Ten small sites on loopback, one for each way to say that content is not for AI training, and one that says nothing.

Each has `/`, `/open.html`, `/open.png`, `/reserved.html` and `/reserved.png`; what it says is about the reserved ones. All requests
are kept in `log`, as (site, path, whether it came through a proxy).
"""

import http.server
import struct
import threading
import zlib

INDEX = """<!doctype html><title>{name}</title><a href="/open.html">open</a> <a href="/reserved.html">reserved</a>
<img src="/open.png"> <img src="/reserved.png">"""
# robots.txt, tdmrep.json, and a field of the reserved answers, or what the head of their page has.
SITES = {
    "nothing": ("", None, None),
    "robots-content-usage": ("User-agent: *\nContent-Usage: /reserved train-ai=n\n", None, None),
    "robots-content-signal": ("User-agent: *\nContent-Signal: /reserved search=yes, ai-train=no\n", None, None),
    "content-usage": ("", None, ("Content-Usage", "search=y, train-ai=n")),
    "noai": ("", None, ("X-Robots-Tag", "noai")),
    "noimageai": ("", None, ("X-Robots-Tag", "noimageai")),
    "tdm-reservation": ("", None, ("TDM-Reservation", "1")),
    "meta-noai": ("", None, "<meta name=robots content=noai>"),
    "meta-tdm": ("", None, "<meta name=tdm-reservation content=1>"),
    "tdmrep": ("", '[{ "location": "/reserved", "tdm-reservation": 1 }]', None),
}
log = []


def png(seed):
    """A picture of 64 by 64 pixels."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * y + seed * c) % 256 for x in range(64) for c in range(3)) for y in range(64))
    header = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.server.name
        robots, tdmrep, field = SITES[name]
        agent = self.headers.get("User-Agent", "")
        log.append((name, self.path, "Via" in self.headers or agent.startswith("politely/")))
        files = {"/robots.txt": ("text/plain", robots), "/.well-known/tdmrep.json": ("application/json", tdmrep),
                 "/": ("text/html", INDEX.format(name=name))}
        for seed, which in enumerate(("open", "reserved"), 1):
            meta = field if isinstance(field, str) and which == "reserved" else ""
            files[f"/{which}.html"] = ("text/html", f"<head>{meta}<title>{which} of {name}</title></head>")
            files[f"/{which}.png"] = ("image/png", png(seed))
        kind, body = files.get(self.path, ("text/plain", None))
        self.send_response(404 if body is None else 200)
        body = body or ""
        body = body.encode() if isinstance(body, str) else body
        if isinstance(field, tuple) and self.path.startswith("/reserved"):
            self.send_header(*field)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def start():
    """The sites' URLs, by name."""
    urls = {}
    for name in SITES:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.name = name
        threading.Thread(target=server.serve_forever, daemon=True).start()
        urls[name] = f"http://127.0.0.1:{server.server_port}"
    return urls
