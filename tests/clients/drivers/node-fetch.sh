# Node.js fetch
family=Node.js
quick=yes
install() { npm_registry; }
version() { node --version | tr -d v; }
recipe fetch.mjs <<'END'
for (const url of process.argv.slice(2)) {
  const response = await fetch(url);
  console.log(url, response.status, response.headers.get("proxy-status"));
}
END
fetch() {
    politely run node fetch.mjs "$@"
}
bare() {
    politely run env -u NODE_OPTIONS -u NODE_USE_ENV_PROXY node fetch.mjs "$@"
}
