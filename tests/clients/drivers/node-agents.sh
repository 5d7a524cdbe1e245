# Node.js 24 with agents of its own
family=Node.js
quick=yes
install() { npm_registry node@24; }
version() { npm_version node; }
recipe fetch.mjs <<'END'
import http from "node:http";
import https from "node:https";

const agents = { "http:": new http.Agent({ keepAlive: true }), "https:": new https.Agent({ keepAlive: true }) };
for (const url of process.argv.slice(2)) {
  const { protocol } = new URL(url);
  await new Promise((done) => {
    (protocol === "https:" ? https : http).get(url, { agent: agents[protocol] }, (response) => {
      console.log(url, response.statusCode);
      response.resume().on("end", done);
    });
  });
}
process.exit();
END
fetch() {
    politely run node_modules/node/bin/node fetch.mjs "$@"
}
