#!/usr/bin/env bash
# Node's fetch. From version 24 on it reads the proxy's environment itself; before, undici's agent does.
# usage: node.sh BINARY
. "$(dirname "$0")/lib.sh"
need node nodejs
DIRECTORY=$CACHE/node
mkdir -p "$DIRECTORY"
if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 24 ] && [ ! -d "$DIRECTORY/node_modules/undici" ]; then
    need npm npm
    npm install --silent --no-audit --no-fund --prefix "$DIRECTORY" undici@6 > /dev/null
fi
cat > "$DIRECTORY/client.mjs" <<'JAVASCRIPT'
import assert from "node:assert";

if (Number(process.versions.node.split(".")[0]) < 24) {
  const { EnvHttpProxyAgent, setGlobalDispatcher } = await import("undici");
  setGlobalDispatcher(new EnvHttpProxyAgent());
}
for (const site of process.argv.slice(2)) {
  for (const target of ["/one.html", "/data.json"]) {
    const response = await fetch(site + target);
    assert.equal(response.status, 200, await response.text());
  }
  for (const target of ["/private/two.html", "/public/../private/two.html", "/%70rivate/six.html"]) {
    const response = await fetch(site + target);
    assert.equal(response.status, 403);
    assert.match(response.headers.get("proxy-status"), /^politely; error=http_request_denied/);
    assert.match((await response.json()).type, /robots-disallowed$/);
  }
}
JAVASCRIPT
politely node "$DIRECTORY/client.mjs" "$PLAIN" "$TLS" || fail "the client's own assertions"
seen /one.html /data.json
nothing_disallowed
