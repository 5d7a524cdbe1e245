#!/usr/bin/env bash
# Node's fetch, http and https, with agents of their own too, by the environment alone.
# usage: node.sh BINARY
. "$(dirname "$0")/lib.sh"
need node nodejs
cat > "$WORK/client.mjs" <<'JAVASCRIPT'
import assert from "node:assert";
import http from "node:http";
import https from "node:https";

const get = (url, options) => new Promise((resolve, reject) => {
  const module = url.startsWith("https") ? https : http;
  const agent = options.own ? new module.Agent({ keepAlive: true }) : undefined;
  module.get(url, { agent }, (response) => {
    let body = "";
    response.on("data", (piece) => (body += piece)).on("end", () => {
      agent?.destroy();
      resolve({ status: response.statusCode, body });
    });
  }).on("error", reject);
});
for (const site of process.argv.slice(2)) {
  for (const target of ["/one.html", "/data.json"]) {
    const response = await fetch(site + target);
    assert.equal(response.status, 200, await response.text());
    assert.match(response.headers.get("via"), /politely/);
    for (const own of [false, true]) assert.equal((await get(site + target, { own })).status, 200);
  }
  for (const target of ["/private/two.html", "/public/../private/two.html", "/%70rivate/six.html"]) {
    const response = await fetch(site + target);
    assert.equal(response.status, 403);
    assert.match(response.headers.get("proxy-status"), /^politely; error=http_request_denied/);
    assert.match((await response.json()).type, /robots-disallowed$/);
    for (const own of [false, true]) assert.equal((await get(site + target, { own })).status, 403);
  }
}
JAVASCRIPT
politely node "$WORK/client.mjs" "$PLAIN" "$TLS" || fail "the client's own assertions"
seen /one.html /data.json
nothing_disallowed
