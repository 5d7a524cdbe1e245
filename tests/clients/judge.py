#!/usr/bin/env python3
"""Reads the site's log and says what a client did wrong, one fault a line and exit 1, or else in a word how it did.

usage: judge.py DIRECTORY --how fetch|crawl [--sees PATHS] [--suffix TEXT] [--or-nothing] [--refused] [--returns] --urls URL…
"""

import argparse
import collections
import re
import sys
import urllib.parse

# By the site's own robots.txt.
DELAYS = {"slow.example": 1, "busy.example": 3}
# A loaded machine brings a request late; a client that nobody paces comes at once.
LENIENT = 0.3
# Of one URL: the first, and what a client retries by default.
MANY = 5

Line = collections.namedtuple("Line", "time scheme method url agent way")


def allowed(url):
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    return "/private/" not in path and not path.endswith(".secret")


def faults(log, told, wanted, args):
    for line in log:
        if line.way == "direct":
            yield f"went round the proxy: {line.url}"
        elif not allowed(line.url):
            yield f"disallowed, and arrived: {line.url}"
    pages = [line for line in log if line.way == "via" and not line.url.endswith("/robots.txt")]
    read = {urllib.parse.urlsplit(line.url).netloc for line in log if line.way == "own"}
    for host in {urllib.parse.urlsplit(line.url).netloc for line in pages} - read:
        yield f"robots.txt of {host} was not read"
    arrived = {line.url for line in pages}
    if not args.or_nothing and not args.refused or args.returns:
        for url in sorted(wanted - arrived):
            yield f"allowed, and did not arrive: {url}"
    for host, delay in DELAYS.items():
        times = sorted(line.time for line in pages if urllib.parse.urlsplit(line.url).netloc == host)
        for before, after in zip(times, times[1:]):
            if after - before < delay - LENIENT:
                yield f"{host} was asked {after - before:.3f} s after the last, not {delay}"
    refusals = collections.Counter(re.findall(r"politely: (https?://\S+): ", told))
    asked = {urllib.parse.urlsplit(url).netloc for url in args.urls}
    for url, count in refusals.items():
        if count > MANY and urllib.parse.urlsplit(url).netloc in asked:
            yield f"was refused {url} {count} times"
    if args.refused and not args.returns and refusals and wanted <= arrived:
        yield "came back, of which its driver says nothing (returns=yes)"
    # Who is slower than the delay is not refused.
    if args.refused and not refusals and not wanted <= arrived:
        yield "was not refused for waiting, and did not get there"


def verdict(log, told, wanted, args):
    arrived = {line.url for line in log if line.way == "via"}
    if args.refused and "politely: http" not in told:
        return "too slow for it"
    if args.refused:
        return "comes back" if wanted <= arrived else "gives up"
    return "works" if wanted <= arrived else "fails"


parser = argparse.ArgumentParser()
parser.add_argument("directory")
parser.add_argument("--how", choices=["fetch", "crawl"], required=True)
parser.add_argument("--sees", default="")
parser.add_argument("--suffix", default="")
for flag in ["--or-nothing", "--refused", "--returns"]:
    parser.add_argument(flag, action="store_true")
parser.add_argument("--urls", nargs="+", required=True)
args = parser.parse_args()
with open(f"{args.directory}/site/log") as file:
    log = [Line(float(time), *rest) for time, *rest in (line.rstrip("\n").split("\t") for line in file)]
with open(f"{args.directory}/client.log", errors="replace") as file:
    told = file.read()
if args.how == "fetch":
    wanted = {url + args.suffix for url in args.urls if allowed(url)}
else:
    wanted = set()
    for url in args.urls:
        slow = urllib.parse.urlsplit(url).netloc in DELAYS
        wanted |= {url.rstrip("/") + path for path in (["/", "/1", "/2"] if slow else args.sees.split())}
found = sorted(set(faults(log, told, wanted, args)))
print(*(found or [verdict(log, told, wanted, args)]), sep="\n", file=sys.stderr)
sys.exit(bool(found))
