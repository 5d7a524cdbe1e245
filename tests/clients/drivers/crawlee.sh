# Crawlee
#
# Its own proxy option, and `blockedStatusCodes: []`: [browsers](browsers.md#crawlee).
family='Crawlers'
returns=yes
sees='/ /one.html /deep/three.html'
install() { npm_registry @crawlee/cheerio; }
version() { npm_version @crawlee/cheerio; }
recipe crawl.mjs <<'END'
import { CheerioCrawler, ProxyConfiguration } from "@crawlee/cheerio";
import { setTimeout } from "node:timers/promises";

const crawler = new CheerioCrawler({
  proxyConfiguration: new ProxyConfiguration({ proxyUrls: [process.env.https_proxy] }),
  sessionPoolOptions: { blockedStatusCodes: [] },
  additionalMimeTypes: ["*/*"],
  navigationTimeoutSecs: 660,
  requestHandlerTimeoutSecs: 660,
  async requestHandler({ enqueueLinks, request, response }) {
    console.log(request.url, response.statusCode);
    if (response.statusCode === 429) {
      await setTimeout(1000 * Number(response.headers["retry-after"] ?? 1));
      throw new Error("asked to come back");
    }
    await enqueueLinks();
  },
});
await crawler.run(process.argv.slice(2));
END
crawl() {
    politely run node crawl.mjs "$@"
}
