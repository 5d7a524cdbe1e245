# puppeteer-core
#
# [browsers](browsers.md#puppeteer)
family='Browsers'
sees='/ /style.css /script.js /image.svg /data.json'
install() { debian chromium libnss3-tools; npm_registry puppeteer-core; }
version() { npm_version puppeteer-core; }
recipe fetch.mjs <<'END'
import puppeteer from "puppeteer-core";

const browser = await puppeteer.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await browser.newPage();
for (const url of process.argv.slice(2)) {
  await page.goto(url, { waitUntil: "networkidle0", timeout: 660_000 });
  console.log(url, await page.title());
}
await browser.close();
END
crawl() {
    politely run node fetch.mjs "$@"
}
