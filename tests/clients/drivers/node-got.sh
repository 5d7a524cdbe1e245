# got
#
# It waits for as long as Retry-After says.
family=Node.js
returns=yes
install() { npm_registry got; }
version() { npm_version got; }
recipe fetch.mjs <<'END'
import got from "got";

for (const url of process.argv.slice(2)) {
  const response = await got(url, { throwHttpErrors: false });
  console.log(url, response.statusCode);
}
END
fetch() {
    politely run node fetch.mjs "$@"
}
bare() {
    politely run env -u NODE_OPTIONS -u NODE_USE_ENV_PROXY node fetch.mjs "$@"
}
