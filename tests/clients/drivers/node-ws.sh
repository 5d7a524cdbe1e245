# ws
#
# An agent: `new HttpsProxyAgent(process.env.https_proxy)`.
family='WebSocket and gRPC'
install() { npm_registry ws https-proxy-agent; }
version() { npm_version ws; }
recipe fetch.mjs <<'END'
import { HttpsProxyAgent } from "https-proxy-agent";
import WebSocket from "ws";

const agent = new HttpsProxyAgent(process.env.https_proxy);
for (const url of process.argv.slice(2)) {
  await new Promise((done) => {
    const socket = new WebSocket(url.replace("http", "ws"), { agent });
    socket.on("message", (data) => console.log(url, data.toString()));
    socket.on("error", (refused) => console.log(url, refused.message)).on("close", done);
  });
}
END
fetch() {
    politely run node fetch.mjs "$@"
}
bare() {
    politely run node --input-type=module -e '
        import WebSocket from "ws";
        for (const url of process.argv.slice(1)) {
            await new Promise((done) => new WebSocket(url.replace("http", "ws"), { rejectUnauthorized: false }).on("error", done).on("close", done));
        }' "$@"
}
