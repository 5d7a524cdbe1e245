import { CheerioCrawler, ProxyConfiguration } from "@crawlee/cheerio";
import { start } from "politely-proxy";

const proxy = await start("-v");
const crawler = new CheerioCrawler({
  ...proxy.crawlee(ProxyConfiguration),
  additionalMimeTypes: ["*/*"],
  async requestHandler({ request, response }) {
    console.log(response.statusCode, request.url);
  },
});
await crawler.run(process.argv.slice(2));
await proxy.close();
