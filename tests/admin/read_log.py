"""Reads an access log with two readers of logfmt that know nothing of this proxy: both have to see the same, and all of it."""

import sys

import logfmt
import logfmtkv

AGENT = 'ExampleBot/1.0 (+"http://bot.example" = x)'
SEEN = {
    ("forwarded", "no-matching-rule", "200"),
    ("refused", "robots-disallowed", "403"),
    ("answered", "robots-txt", "200"),
    ("intercepted", "intercept", "200"),
    ("tunnelled", "tunnel", "200"),
    ("refused", "robots-unreachable", "503"),
    ("refused", "egress-denied", "403"),
    ("refused", "bad-request", "400"),
}

text = open(sys.argv[1], encoding="utf-8").read()
lines = text.splitlines()
first = list(logfmt.parse(lines))
second = [dict(logfmtkv.parse(line)) for line in lines]
assert len(first) == len(second) == len(lines), (len(first), len(second), len(lines))
for one, other, line in zip(first, second, lines):
    if r"\\" in line:
        # logfmt loses a backslash, and what follows it.
        assert other["agent"] == "back\\slash", line
        continue
    assert set(one) == set(other), line
    for name in one:
        assert str(one[name]).lower() == str(other[name]).lower(), (name, one[name], other[name], line)
    assert {"time", "id", "client", "outcome", "status", "held_ms", "ms", "bytes_in", "bytes_out"} <= set(one), line
seen = {(str(it["outcome"]), str(it.get("decision")), str(it["status"])) for it in second}
assert SEEN <= seen, SEEN - seen
[asked] = [it for it in second if it.get("agent") == AGENT]
assert asked["token"] == "ExampleBot" and "/open?q=a%20b&c=" in asked["url"], asked
[refused] = [it for it in second if it.get("decision") == "robots-disallowed"]
assert (refused["rule"], str(refused["line"])) == ("Disallow: /private", "2"), refused
assert len({it["id"] for it in second}) == len(second)
print(f"{len(lines)} lines, read alike")
