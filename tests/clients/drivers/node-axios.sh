# axios
family=Node.js
install() { npm_registry axios; }
version() { npm_version axios; }
recipe fetch.mjs <<'END'
import axios from "axios";

for (const url of process.argv.slice(2)) {
  const response = await axios.get(url, { validateStatus: () => true });
  console.log(url, response.status);
}
END
fetch() {
    politely run node fetch.mjs "$@"
}
