"""The application for aiohttp. usage: aiohttp_app.py CERT KEY KIND=PORT…"""

import asyncio
import ssl
import sys

from aiohttp import web
from shared import answer


async def serve(request):
    body = await request.read()
    fields = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in request.raw_headers]
    status, answered, pieces = await asyncio.to_thread(answer, request.method, request.raw_path, fields, body)
    response = web.StreamResponse(status=status)
    for name, value in answered:
        response.headers.add(name, value)
    await response.prepare(request)
    pieces = iter(pieces)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        if request.method != "HEAD":
            await response.write(piece)
    await response.write_eof()
    return response


async def main(cert, key, *listeners):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    for listener in listeners:
        kind, port = listener.split("=")
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", serve)
        more = {"keepalive_timeout": 1} if kind.startswith("idle") else {}
        runner = web.AppRunner(app, access_log=None, max_field_size=65536, max_line_size=65536, **more)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", int(port), ssl_context=None if kind.endswith("http") else tls).start()
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
