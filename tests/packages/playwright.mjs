import { chromium } from "playwright-core";
import { start } from "politely-proxy";

const proxy = await start("-v");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext(proxy.playwright());
const page = await context.newPage();
for (const url of process.argv.slice(2)) {
  const answer = await page.goto(url, { timeout: 660_000 }).catch((error) => ({ status: () => error.message }));
  console.log(answer.status(), url);
}
await browser.close();
await proxy.close();
