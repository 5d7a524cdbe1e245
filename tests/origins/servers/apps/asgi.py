"""The application for ASGI servers."""

import asyncio

from shared import answer


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    target = scope["raw_path"].decode("latin-1") + ("?" + scope["query_string"].decode("latin-1") if scope["query_string"] else "")
    fields = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
    status, answered, pieces = await asyncio.to_thread(answer, scope["method"], target, fields, body)
    headers = [(name.lower().encode(), value.encode()) for name, value in answered]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    pieces = iter(pieces)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
