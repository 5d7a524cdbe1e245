"""The application for WSGI servers, which do not tell the path as it came."""

import http

from shared import answer


def app(environ, start_response):
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI") or environ["PATH_INFO"]
    fields = [[name[5:].replace("_", "-"), value] for name, value in sorted(environ.items()) if name.startswith("HTTP_")]
    status, answered, pieces = answer(environ["REQUEST_METHOD"], target, fields, environ["wsgi.input"].read())
    start_response(f"{status} {http.HTTPStatus(status).phrase}", answered)
    return pieces
