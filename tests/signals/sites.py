"""Small sites, one for each way to say that content is not for AI training, and one that says nothing. One server is all of them, as the
proxy that politely is told to use: no tool gets to `http://noai.example` by itself.

Each has `/`, `/open.html`, `/open.png`, `/reserved.html` and `/reserved.png`; what it says is about the reserved ones. All requests
are kept in `log`, as (site, path, whether politely has sent it).
"""

import http.server
import struct
import threading
import urllib.parse
import zlib

INDEX = """<!doctype html><title>{name}</title><a href="/open.html">open</a> <a href="/reserved.html">reserved</a>
<img src="/open.png"> <img src="/reserved.png">"""
LICENCE = """<rsl xmlns="https://rslstandard.org/rsl"><content url="/reserved"><license>
<prohibits type="usage">ai-train</prohibits></license></content></rsl>"""
# What robots.txt says, what other files of the site do, and a field of the reserved answers, or what the head of their page has.
SITES = {
    "nothing": ("", {}, None),
    "robots-content-usage": ("User-agent: *\nContent-Usage: /reserved train-ai=n\n", {}, None),
    "robots-content-signal": ("User-agent: *\nContent-Signal: /reserved search=yes, ai-train=no\n", {}, None),
    "robots-purpose-group": ("User-agent: ExampleTraining\nDisallow: /reserved\n", {}, None),
    "rsl": ("License: http://rsl.example/license.xml\n", {"/license.xml": LICENCE}, None),
    "tdmrep": ("", {"/.well-known/tdmrep.json": '[{ "location": "/reserved", "tdm-reservation": 1 }]'}, None),
    "content-usage": ("", {}, ("Content-Usage", "search=y, train-ai=n")),
    "content-signal": ("", {}, ("Content-Signal", "search=yes, ai-train=no")),
    "noai": ("", {}, ("X-Robots-Tag", "noai")),
    "noimageai": ("", {}, ("X-Robots-Tag", "noimageai")),
    "robots-tag": ("", {}, ("Robots-Tag", "*;noai")),
    "tdm-reservation": ("", {}, ("TDM-Reservation", "1")),
    "meta-noai": ("", {}, "<meta name=robots content=noai>"),
    "meta-tdm": ("", {}, "<meta name=tdm-reservation content=1>"),
}
# Those that say no before anything is asked for.
BEFORE = ("robots-content-usage", "robots-content-signal", "robots-purpose-group", "rsl", "tdmrep")
# Where politely is told what `ExampleTraining` stands for, and that nothing else is agreed with the site.
SETTINGS = {"POLITELY_IDENTITY__POLICY_TOKENS": "{ ai-train: [ExampleTraining] }", "POLITELY_USAGE__LICENSE": "enforce"}
TEXT = "<p>What is on a page, at such a length that tools take it for one.</p>" * 20
log = []


def is_reserved(name, path):
    """Whether this is not for training."""
    is_image = path.endswith(".png")
    is_said = name != "nothing" and not (name == "noimageai" and not is_image or name.startswith("meta-") and is_image)
    return path.startswith("/reserved") and is_said


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
        url = urllib.parse.urlsplit(self.path)
        name = (url.hostname or "").removesuffix(".example")
        robots, others, field = SITES.get(name, ("", {}, None))
        agent = self.headers.get("User-Agent", "")
        log.append((name, url.path, "Via" in self.headers or agent.startswith("politely/")))
        files = {"/robots.txt": ("text/plain", robots), "/": ("text/html", INDEX.format(name=name))}
        files |= {path: ("text/plain", body) for path, body in others.items()}
        for seed, which in enumerate(("open", "reserved"), 1):
            meta = field if isinstance(field, str) and which == "reserved" else ""
            files[f"/{which}.html"] = ("text/html", f"<head>{meta}<title>{which} of {name}</title></head><body>{TEXT}</body>")
            files[f"/{which}.png"] = ("image/png", png(seed))
        kind, body = files.get(url.path, ("text/plain", None)) if name in SITES else ("text/plain", None)
        self.send_response(404 if body is None else 200)
        body = body or ""
        body = body.encode() if isinstance(body, str) else body
        if isinstance(field, tuple) and url.path.startswith("/reserved"):
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
    """The address of the proxy that all of them are behind."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
