#!/usr/bin/env python3
"""The application behind the servers that are no application themselves: it tells what it received.

usage: backend.py DOCROOT    prints its port on 127.0.0.1

`/app/NAME` is answered by the function `app_NAME`; `/app/` and anything below it by a JSON of the request as it came
(method, target, fields, length and hash of the body, trailers). What else is asked for is a file below DOCROOT. HTTP/1.1
by hand, since no library says what came and sends what is asked for here.
"""

import asyncio
import email.utils
import gzip
import hashlib
import json
import os
import re
import sys

ROOT = None


class Request:
    def __init__(self, method, target, fields):
        self.method, self.target, self.fields = method, target, fields
        self.body, self.trailers = b"", []

    def field(self, name):
        return next((value for key, value in self.fields if key.lower() == name), None)


async def read_fields(reader):
    fields = []
    while (line := (await reader.readuntil(b"\r\n"))[:-2]) != b"":
        name, _, value = line.decode("latin-1").partition(":")
        fields.append([name, value.strip()])
    return fields


async def read_body(reader, writer, request):
    if (request.field("expect") or "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in (request.field("transfer-encoding") or "").lower():
        pieces = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            pieces.append(await reader.readexactly(size))
            await reader.readexactly(2)
        request.trailers = await read_fields(reader)
        request.body = b"".join(pieces)
    else:
        request.body = await reader.readexactly(int(request.field("content-length") or 0))


class Answer:
    """Writes one answer; `close` once it has to be the connection's last."""

    def __init__(self, request, writer):
        self.request, self.writer, self.close = request, writer, False

    def head(self, status, fields, interim=False):
        text = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields)
        if not interim:
            text += f"Date: {email.utils.formatdate(usegmt=True)}\r\n"
        self.writer.write(text.encode("latin-1") + b"\r\n")

    def whole(self, status, fields, body):
        if isinstance(body, str):
            body = body.encode()
        self.head(status, [*fields, ("Content-Length", len(body))])
        if self.request.method != "HEAD":
            self.writer.write(body)

    def piece(self, data):
        if self.request.method != "HEAD":
            self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self, trailers=()):
        if self.request.method != "HEAD":
            self.writer.write(b"0\r\n" + "".join(f"{n}: {v}\r\n" for n, v in trailers).encode() + b"\r\n")


CHUNKED = [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked")]


async def app_chunked(answer):
    answer.head("200 OK", CHUNKED)
    for data in [b"one ", b"two ", b"three"]:
        answer.piece(data)
        await answer.writer.drain()
        await asyncio.sleep(0.02)
    answer.end()


async def app_trailers(answer):
    answer.head("200 OK", [*CHUNKED, ("Trailer", "X-Sum")])
    answer.piece(b"body with a trailer")
    answer.end([("X-Sum", "19")])


async def app_close(answer):
    answer.head("200 OK", [("Content-Type", "text/plain"), ("Connection", "close")])
    answer.writer.write(b"until the connection ends" * (answer.request.method != "HEAD"))
    answer.close = True


async def app_204(answer):
    answer.head("204 No Content", [("X-Kind", "none")])


async def app_hints(answer):
    answer.head("103 Early Hints", [("Link", "</style.css>; rel=preload; as=style")], interim=True)
    await answer.writer.drain()
    await asyncio.sleep(0.05)
    answer.whole("200 OK", [("Content-Type", "text/plain")], "after hints")


async def app_headers(answer):
    answer.whole("200 OK", [(f"X-Long-{i}", chr(97 + i) * 1000) for i in range(30)], "30 KB of fields")


async def app_cookies(answer):
    fields = [("Set-Cookie", f"{name}=1; Path=/; HttpOnly") for name in "abc"]
    answer.whole("200 OK", [*fields, ("Set-Cookie", "d=2; Expires=Wed, 09 Jun 2032 10:18:14 GMT")], "cookies")


async def app_gzip(answer):
    fields = [("Content-Type", "text/plain"), ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
    answer.whole("200 OK", fields, gzip.compress(b"compressed by the application " * 50, mtime=0))


async def app_pause(answer):
    answer.head("200 OK", CHUNKED)
    answer.piece(b"before ")
    await answer.writer.drain()
    await asyncio.sleep(3)
    answer.piece(b"after")
    answer.end()


async def app_late(answer):
    await asyncio.sleep(3)
    answer.whole("200 OK", [("Content-Type", "text/plain")], "late")


async def app_slow(answer):
    """Long enough for others to be under way at once."""
    await asyncio.sleep(0.1)
    answer.whole("200 OK", [("Content-Type", "text/plain")], "slow")


async def app_redirect(answer):
    answer.whole("307 Temporary Redirect", [("Location", "/app/elsewhere?x=1#part")], "elsewhere")


async def app_teapot(answer):
    answer.whole("418 I'm a teapot", [("X-Kind", "odd")], "short and stout")


async def app_big(answer):
    answer.whole("200 OK", [("Content-Type", "application/octet-stream")], bytes(range(256)) * 4096)


async def app_cut(answer):
    answer.head("200 OK", [("Content-Length", 100)])
    answer.writer.write(b"ten bytes.")
    answer.close = True


async def app_reset(answer):
    answer.writer.transport.abort()
    answer.close = True


app_closed = app_reset


async def echo(answer):
    request = answer.request
    told = {
        "method": request.method,
        "target": request.target,
        "fields": request.fields,
        "length": len(request.body),
        "sha256": hashlib.sha256(request.body).hexdigest(),
        "trailers": request.trailers,
    }
    answer.whole("200 OK", [("Content-Type", "application/json")], json.dumps(told))


async def app_early(answer):
    """413 before the body was read, which is read all the same."""
    answer.head("413 Payload Too Large", [("Content-Length", 9), ("Connection", "close")])
    answer.writer.write(b"too large")
    answer.close = True


EARLY = {"/app/early"}


async def static(answer):
    request = answer.request
    path = os.path.normpath(ROOT + request.target.split("?")[0])
    if request.target == "/old":
        return answer.whole("301 Moved Permanently", [("Location", "/index.html")], "moved")
    if request.target == "/":
        path = ROOT + "/index.html"
    if not path.startswith(ROOT + "/") or not os.path.isfile(path):
        return answer.whole("404 Not Found", [("Content-Type", "text/plain")], "not found")
    if request.method not in ("GET", "HEAD"):
        return answer.whole("405 Method Not Allowed", [("Allow", "GET, HEAD")], "no such method")
    with open(path, "rb") as file:
        body = file.read()
    etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    modified = email.utils.formatdate(os.stat(path).st_mtime, usegmt=True)
    fields = [("ETag", etag), ("Last-Modified", modified), ("Accept-Ranges", "bytes")]
    if request.field("if-none-match") == etag or request.field("if-modified-since"):
        return answer.head("304 Not Modified", fields)
    if span := re.fullmatch(r"bytes=(\d+)-(\d+)", request.field("range") or ""):
        first, last = int(span[1]), min(int(span[2]), len(body) - 1)
        fields.append(("Content-Range", f"bytes {first}-{last}/{len(body)}"))
        return answer.whole("206 Partial Content", fields, body[first : last + 1])
    answer.whole("200 OK", [*fields, ("Content-Type", "text/plain")], body)


async def serve(reader, writer):
    try:
        while line := await reader.readline():
            method, target, _ = line.decode("latin-1").rstrip("\r\n").split(" ", 2)
            request = Request(method, target, await read_fields(reader))
            answer, path = Answer(request, writer), target.split("?")[0]
            if path not in EARLY:
                await read_body(reader, writer, request)
            named = globals().get("app_" + path[5:]) if re.fullmatch(r"/app/[0-9a-z]+", path) else None
            await (named or (echo if path.startswith("/app/") else static))(answer)
            await writer.drain()
            if answer.close or (request.field("connection") or "").lower() == "close":
                break
        if writer.can_write_eof():
            writer.write_eof()
        # Reading on, so that what the other side still sends does not become a reset.
        async with asyncio.timeout(5):
            while await reader.read(65536):
                pass
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
        pass
    finally:
        writer.close()


async def main():
    global ROOT
    ROOT = os.path.realpath(sys.argv[1])
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
