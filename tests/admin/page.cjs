// The page for people in Debian's Chromium: in the light, in the dark, on a phone. node page.cjs URL TOKEN DIRECTORY
"use strict";
const assert = require("node:assert");
const { chromium } = require("playwright-core");

const [url, token, directory] = process.argv.slice(2);
const LOOKS = [
  ["light", { width: 1280, height: 900 }, "light"],
  ["dark", { width: 1280, height: 900 }, "dark"],
  ["phone", { width: 390, height: 844 }, "light"],
];

(async () => {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  for (const [name, viewport, colorScheme] of LOOKS) {
    const page = await (await browser.newContext({ viewport, colorScheme })).newPage();
    const faults = [];
    page.on("pageerror", (error) => faults.push(String(error)));
    await page.goto(url);
    await page.waitForSelector("#token:not([hidden])");
    assert.equal(await page.locator("#hosts tr").count(), 0, "nothing is told without the token");
    if (name === "light") {
      await page.fill("#token input", token);
      await page.click("#token button");
    } else {
      await page.goto(`${url}#${token}`);
      await page.reload();
    }
    await page.waitForSelector("#held tr");
    assert.ok(!page.url().includes(token), "it is taken out of the address");
    const text = await page.innerText("main");
    for (const part of ["Users", "127.0.0.1", "Held requests", "/slow/", "crawl-delay 200 s", "Recent refusals", "robots-disallowed",
      "Disallow: /private (line 2)", "200 s"]) {
      assert.ok(text.includes(part), `${name}: ${part} is missing:\n${text}`);
    }
    const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= room, `${name}: ${wide} of ${room} px`);
    await page.fill("#explain input[name=url]", `http://127.0.0.1:1/x`);
    await page.click("#explain button");
    await page.waitForFunction(() => document.getElementById("verdict").textContent !== "");
    assert.deepEqual(faults, []);
    await page.screenshot({ path: `${directory}/page-${name}.png`, fullPage: true });
    console.log(`${name}: ${wide} of ${room} px`);
    await page.close();
  }
  await browser.close();
})();
