import { ProxyAgent, request } from "undici";
import { start } from "politely-proxy";

// Nothing closes it: it ends with the process.
const proxy = await start("-v");
const dispatcher = new ProxyAgent({ uri: proxy.url, requestTls: { ca: proxy.ca }, headersTimeout: 660_000 });
for (const url of process.argv.slice(2)) {
  const answer = await request(url, { dispatcher });
  await answer.body.text();
  console.log(answer.statusCode, url);
}
await dispatcher.close();
