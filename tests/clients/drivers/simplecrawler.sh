# simplecrawler
#
# `timeout = 660_000`, `respectRobotsTxt = false`.
family='Crawlers'
quick=yes
sees='/ /one.html /deep/three.html /style.css /script.js /image.svg'
install() { npm_registry simplecrawler; }
version() { npm_version simplecrawler; }
recipe crawl.mjs <<'END'
import Crawler from "simplecrawler";

for (const url of process.argv.slice(2)) {
  const crawler = new Crawler(url);
  crawler.respectRobotsTxt = false;
  crawler.timeout = 660_000;
  crawler.on("fetchheaders", (item, response) => console.log(item.url, response.statusCode));
  crawler.start();
}
END
crawl() {
    politely run node crawl.mjs "$@"
}
