#!/usr/bin/env bash
# Python's requests, by its environment alone.
# usage: requests.sh BINARY
. "$(dirname "$0")/lib.sh"
VENV=$CACHE/python
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
"$VENV/bin/python" -c 'import requests' 2>/dev/null || "$VENV/bin/pip" install -q requests
cat > "$WORK/client.py" <<'PYTHON'
import sys
import requests

session = requests.Session()
for site in sys.argv[1:]:
    for target in ["/one.html", "/deep/three.html"]:
        response = session.get(site + target, timeout=30)
        assert response.status_code == 200, (response.status_code, response.text)
    for target in ["/private/two.html", "/%70rivate/two.html", "/x.secret"]:
        response = session.get(site + target, timeout=30)
        assert response.status_code == 403, (target, response.status_code, response.text)
        assert response.headers["Proxy-Status"].startswith("politely; error=http_request_denied"), response.headers
        assert response.json()["type"].endswith("robots-disallowed"), response.text
PYTHON
politely "$VENV/bin/python" "$WORK/client.py" "$PLAIN" "$TLS" || fail "the client's own assertions"
seen /one.html /deep/three.html
nothing_disallowed
