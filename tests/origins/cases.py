"""What is asked of every server, directly and through the proxy."""

import json
import socket
import time
from dataclasses import dataclass, field
from functools import partial

from harness import HERE, ROBOTS, SECRET, curl, digest, statuses

MODES = ("http", "tls", "h2")
UPLOAD = b"0123456789abcdef" * 6400
LARGE = b"0123456789abcdef" * 300_000

# Said of one hop only (RFC 9110 §7.6.1), or of the moment. What says the version belongs to the hop as well.
OF_THE_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "via", "te", "trailer", "date", "alt-svc", "age",
              "proxy-connection", "x-request-id", "x-varnish", "traceparent", "expect", "http2-settings", "forwarded"}


@dataclass
class Case:
    """One request, whose answer, and what the application says of it, must be the same both ways."""

    name: str
    target: str
    arguments: list = field(default_factory=list)
    stdin: bytes = None
    modes: tuple = MODES
    # Is the application's account of the request compared?
    echo: bool = False


def get(name, target, *arguments, **more):
    return Case(name, target, list(arguments), **more)


def echo(name, target, *arguments, **more):
    return Case(name, target, list(arguments), echo=True, **more)


def post(name, *arguments, target="/app/echo", **more):
    # curl waits for "100 Continue" with large bodies; that is a case of its own.
    return Case(name, target, ["-X", "POST", "-H", "Expect:", *arguments], echo=True, **more)


ODD = ["/app/a%20b?x=1&y=%41;z", "/app//double", "/app/%7Euser~", "/app/a|b", "/app/{x}[1]", '/app/"q"', "/app/`tick`", "/app/a\\b",
       "/app/a?b?c", "/app/%E2%82%AC", "/app/a%2Fb", "/app/a:b@c", "/app/x?u=http://h/p", "/app/^<>",
       "/app/a;b=c/d", "/app/%zz"]

CASES = [
    get("file", "/index.html"),
    get("file-head", "/index.html", "-I"),
    get("file-gzip", "/index.html", "-H", "Accept-Encoding: gzip"),
    get("file-large", "/big.bin"),
    get("file-range", "/big.bin", "-r", "1000-1999"),
    get("file-ranges", "/big.bin", "-r", "0-9,90-99"),
    get("file-range-bad", "/big.bin", "-r", "9999999-"),
    get("file-304", "/index.html", "-H", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"),
    get("file-304-head", "/index.html", "-I", "-H", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"),
    get("file-404", "/none"),
    get("file-404-head", "/none", "-I"),
    get("file-redirect", "/old"),
    get("file-options", "/index.html", "-X", "OPTIONS"),
    get("file-delete", "/index.html", "-X", "DELETE"),
    echo("get", "/app/echo?x=1"),
    echo("head", "/app/echo", "-I"),
    get("head-chunked", "/app/chunked", "-I"),
    get("head-large", "/app/big", "-I"),
    echo("options", "/app/echo", "-X", "OPTIONS"),
    echo("delete", "/app/echo", "-X", "DELETE"),
    echo("patch", "/app/echo", "-X", "PATCH", "--data-binary", "change"),
    echo("put", "/app/echo", "-T", "-", "-H", "Expect:", stdin=UPLOAD),
    post("post-length", "--data-binary", "@upload"),
    post("post-empty", "--data-binary", ""),
    post("post-chunked", "-T", "-", stdin=UPLOAD),
    post("post-large", "--data-binary", "@large"),
    echo("post-expect", "/app/echo", "-X", "POST", "-H", "Expect: 100-continue", "--data-binary", "@upload"),
    get("chunked", "/app/chunked"),
    get("close-delimited", "/app/close"),
    get("trailers", "/app/trailers", "-H", "TE: trailers"),
    get("204", "/app/204"),
    get("hints", "/app/hints"),
    get("fields-30k-answer", "/app/headers"),
    echo("fields-30k-request", "/app/echo", *(w for i in range(3) for w in ("-H", f"X-Long-{i}: " + "v" * 10_000))),
    get("cookies", "/app/cookies"),
    echo("cookies-sent", "/app/echo", "-H", "Cookie: a=1; b=2; c=3"),
    echo("fields", "/app/echo", "-H", "X-Empty;", "-H", "X-Two: a, b", "-H", "Accept: */*;q=0.1", "-H", "Accept-Language: de"),
    get("gzip", "/app/gzip", "-H", "Accept-Encoding: gzip"),
    get("large", "/app/big"),
    get("pause", "/app/pause"),
    get("late", "/app/late"),
    get("redirect", "/app/redirect"),
    get("418", "/app/teapot"),
    get("cut", "/app/cut"),
    get("broken", "/app/reset"),
    *(echo(f"path {target}", target) for target in ODD),
    # curl writes these otherwise when it sends the whole URL.
    *(echo(f"path {target}", target, modes=("tls", "h2")) for target in ("/app/?", "/app/\u20ac")),
]


def difference(case, direct, through, ignore, authority):
    """What is not the same, in words; nothing if all is."""
    found = []
    if direct.code and not direct.status:
        # No answer at all: the proxy's client is told so, or had more luck with what the server does by chance.
        return []
    if bool(direct.code) != bool(through.code):
        found.append(f"curl's exit code: {direct.code} directly, {through.code}")
    if direct.status != through.status:
        found.append(f"status {direct.status} directly, {through.status} ({through.one('proxy-status') or through.body[:80]})")
        return found
    if [status for status in direct.interim if status != 100] != [status for status in through.interim if status != 100]:
        found.append(f"interim answers {direct.interim} directly, {through.interim}")
    # The account of a request tells of the proxy's Via, so it is longer.
    own = ignore | ({"content-length"} if case.echo else set())
    found += fields("field", direct.fields, through.fields, own)
    found += fields("trailer", direct.trailers, through.trailers)
    if through.refused():
        found.append(f"the proxy's own answer: {through.one('proxy-status')}")
    if "-I" in case.arguments:
        # curl shows the head as the body.
        return found
    if case.echo and direct.status == 200:
        found += received(direct.body, through.body, authority)
    elif direct.body != through.body and not direct.code and not made_for_one(direct, through):
        found.append(f"body {digest(direct.body)} directly, {digest(through.body)}")
    if direct.seconds > 2.5 and direct.first < 1.5 and through.first > 2.5:
        found.append(f"the first byte after {through.first:.1f} s, directly after {direct.first:.1f} s")
    return found


def made_for_one(direct, through):
    """Boundaries, and numbers in pages of errors, are each answer's own."""
    ranges = (direct.one("content-type") or "").startswith("multipart/byteranges")
    return (ranges or direct.status >= 500) and len(direct.body) == len(through.body)


def fields(kind, direct, through, own=frozenset()):
    def kept(pairs):
        stay = ((name, value) for name, value in pairs if name not in OF_THE_HOP | own)
        return sorted((name, "" if "boundary=" in value else value) for name, value in stay)

    direct, through = kept(direct), kept(through)
    missing = [f"{kind} lost: {name}: {value[:60]}" for name, value in direct if (name, value) not in through]
    return missing + [f"{kind} added: {name}: {value[:60]}" for name, value in through if (name, value) not in direct]


def received(direct, through, authority):
    try:
        direct, through = json.loads(direct), json.loads(through)
    except ValueError:
        return [f"no account of the request: {direct[:80]!r}, {through[:80]!r}"]
    found = [f"received {key}: {direct[key]!r} directly, {through[key]!r}"
             for key in ("method", "target", "length", "sha256") if direct[key] != through[key]]
    # Over HTTP/2 the host has another place, of which some applications do not tell.
    whole = lambda pairs: pairs if any(name == "host" for name, _ in pairs) else [*pairs, ("host", authority)]
    lower = lambda told: whole([(name.lower(), value) for name, value in told["fields"]])
    found += fields("received field", lower(direct), lower(through))
    return found + fields("received trailer", direct["trailers"], through["trailers"])


# What takes more than one request. Each returns what went wrong, in words.


def disallowed(ask, _, more=()):
    """robots.txt is honoured: no spelling of a disallowed path gets at the file."""
    found = []
    answer = ask("/robots.txt")
    if (answer.status, answer.body) != (200, ROBOTS.encode()):
        found.append(f"robots.txt itself: {answer.status} {digest(answer.body)}")
    answer = ask("/private/x.txt")
    if answer.status != 403 or not answer.refused():
        found.append(f"a disallowed page: {answer.status}")
    for target in [*spellings(), *PLUS, *more]:
        answer = ask(target)
        if SECRET.encode() in answer.body:
            found.append(f"read through {target}")
    return found


# `+` has no meaning in a path: these are one file, whatever robots.txt writes.
PLUS = ["/C++/x.txt", "/C%2B%2B/x.txt", "/C+%2b/x.txt", "//C++/x.txt", "/a/..%2fC++/x.txt"]


def spellings():
    with open(HERE + "/../support/path_spellings.txt") as lines:
        return [line for line in lines.read().splitlines() if line and not line.startswith("#")]


def fifty(many, _):
    return all_ok("50 on one connection", many(["/app/echo"] * 50))


def twenty(many, _):
    at_once = ["--parallel", "--parallel-immediate", "--parallel-max", "20"]
    found = all_ok("20 GETs at once", many(["/app/slow"] * 20, at_once))
    return found + all_ok("20 POSTs at once", many(["/app/slow"] * 20, [*at_once, "-d", "form"]))


def in_a_row(many, _):
    """For servers that end a connection after a few requests, the first of which may be under way."""
    return all_ok("10 GETs in a row", many(["/app/echo"] * 10)) + all_ok("10 POSTs in a row", many(["/app/echo"] * 10, ["-d", "x"]))


def rested(ask, _):
    """The server has ended the connection meanwhile."""
    found = []
    for pause in (0, 2.6, 0.3, 2.6):
        time.sleep(pause)
        answer = ask("/app/echo", "-d", "form")
        if answer.status != 200:
            found.append(f"a POST after a pause of {pause} s: {answer.status} {answer.one('proxy-status')}")
    return found


def early(target, ask, direct):
    """An answer that comes during an upload is passed on."""
    found = []
    upload = lambda way, expect: way(target, "-X", "POST", "-H", expect, "--data-binary", "@large")
    wanted = upload(direct, "Expect:").status
    for expect in ["Expect:"] * 3 + ["Expect: 100-continue"]:
        answer = upload(ask, expect)
        # Where curl itself got none, any will do.
        if answer.status != wanted and (wanted or answer.status < 400):
            found.append(f"an upload with {expect!r}: {answer.status} {answer.one('proxy-status')}, curl {answer.code}")
    return found


def closed(ask, _):
    """A server that hangs up: said to the client, and nothing is broken for the next one."""
    answer, after = ask("/app/closed"), ask("/app/echo")
    found = [] if answer.status in (500, 502, 503, 504) else [f"a request that is hung up on: {answer.status}"]
    return found + ([] if after.status == 200 else [f"the next request: {after.status}"])


def all_ok(what, statuses):
    bad = [status for status in statuses if status != 200]
    return [f"{what}: {bad}"] if bad else []


# By the kind of listener.
SEVERAL = {
    "": {"disallowed": disallowed, "fifty": fifty, "twenty": twenty, "early": partial(early, "/app/early"),
         "limited": partial(early, "/app/limited"), "closed": closed},
    "few": {"few-row": in_a_row, "few-twenty": twenty},
    "one": {"one-twenty": twenty},
    "idle": {"idle": rested},
}


def request_trailers(address, authority):
    """curl sends none, so by hand: what the application says of them."""
    with socket.create_connection(address, timeout=10) as stream:
        target = f"http://{authority}/app/echo" if address[1] != int(authority.split(":")[1]) else "/app/echo"
        stream.sendall(f"POST {target} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
                       "Trailer: X-Sum\r\nUser-Agent: hand\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 4\r\n\r\n".encode())
        received = b""
        while data := stream.recv(65536):
            received += data
    return json.loads(received[received.index(b"{"):received.rindex(b"}") + 1])
