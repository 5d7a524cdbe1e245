# undici
#
# `EnvHttpProxyAgent({ headersTimeout: 660_000 })`; a `RetryAgent` around it retries.
family=Node.js
install() { npm_registry undici; }
version() { npm_version undici; }
recipe fetch.mjs <<'END'
import { EnvHttpProxyAgent, RetryAgent, request } from "undici";

const dispatcher = new RetryAgent(new EnvHttpProxyAgent({ headersTimeout: 660_000 }), { statusCodes: [429, 503], throwOnError: false });
for (const url of process.argv.slice(2)) {
  const { statusCode, body } = await request(url, { dispatcher });
  console.log(url, statusCode);
  await body.dump();
}
END
returns=yes
fetch() {
    politely run node fetch.mjs "$@"
}
