"""What the applications for Python's servers answer, by path: status, fields, and the pieces of the body."""

import hashlib
import json
import os
import time

ROOT = os.environ["DOCROOT"]
TEXT = [("Content-Type", "text/plain")]


def answer(method, target, fields, body):
    path = target.split("?")[0]
    if path.startswith("/app/"):
        return (APP.get(path[5:]) or echo)(method, target, fields, body)
    name = os.path.normpath(ROOT + path)
    if path == "/old":
        return 301, [("Location", "/index.html"), ("Content-Length", "5")], [b"moved"]
    if not name.startswith(ROOT + "/") or not os.path.isfile(name):
        return whole(404, TEXT, b"not found")
    if method not in ("GET", "HEAD"):
        return whole(405, [("Allow", "GET, HEAD")], b"no such method")
    if any(name.lower() == "if-modified-since" for name, _ in fields):
        return 304, [("ETag", '"1"')], []
    with open(name, "rb") as file:
        return whole(200, [*TEXT, ("ETag", '"1"')], file.read())


def whole(status, fields, body):
    return status, [*fields, ("Content-Length", str(len(body)))], [body]


def echo(method, target, fields, body):
    told = {"method": method, "target": target, "fields": fields, "length": len(body),
            "sha256": hashlib.sha256(body).hexdigest(), "trailers": []}
    return whole(200, [("Content-Type", "application/json")], json.dumps(told).encode())


def slowly(seconds, *pieces):
    for number, piece in enumerate(pieces):
        time.sleep(seconds if number else 0)
        yield piece


def after(seconds, body):
    time.sleep(seconds)
    return whole(200, TEXT, body)


COOKIES = [("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=1; Path=/; HttpOnly"), ("Set-Cookie", "c=2; Max-Age=60")]
APP = {
    "chunked": lambda *_: (200, TEXT, slowly(0.02, b"one ", b"two ", b"three")),
    "pause": lambda *_: (200, TEXT, slowly(3, b"before ", b"after")),
    "late": lambda *_: after(3, b"late"),
    "slow": lambda *_: after(0.1, b"slow"),
    "204": lambda *_: (204, [("X-Kind", "none")], []),
    "headers": lambda *_: whole(200, [(f"X-Long-{i}", chr(97 + i) * 1000) for i in range(30)], b"30 KB of fields"),
    "cookies": lambda *_: whole(200, COOKIES, b"cookies"),
    "redirect": lambda *_: whole(307, [("Location", "/app/elsewhere?x=1#part")], b"elsewhere"),
    "teapot": lambda *_: whole(418, [("X-Kind", "odd")], b"short and stout"),
    "big": lambda *_: whole(200, [("Content-Type", "application/octet-stream")], bytes(range(256)) * 4096),
}
