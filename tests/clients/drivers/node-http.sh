# Node.js http and https
family=Node.js
install() { npm_registry; }
version() { node --version | tr -d v; }
recipe fetch.mjs <<'END'
import http from "node:http";
import https from "node:https";

for (const url of process.argv.slice(2)) {
  await new Promise((done) => {
    (url.startsWith("https:") ? https : http).get(url, (response) => {
      console.log(url, response.statusCode);
      response.resume().on("end", done);
    });
  });
}
END
fetch() {
    politely run node fetch.mjs "$@"
}
