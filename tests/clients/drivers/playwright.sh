# Playwright
#
# [browsers](browsers.md#playwright)
family='Browsers'
sees='/ /style.css /script.js /image.svg /data.json'
install() { debian chromium libnss3-tools; pypi playwright; }
version() { pypi_version playwright; }
recipe fetch.py <<'END'
import sys
from playwright.sync_api import sync_playwright

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    page = browser.new_page()
    for url in sys.argv[1:]:
        page.goto(url, wait_until="networkidle", timeout=660_000)
        print(url, page.title())
    browser.close()
END
crawl() {
    politely run python fetch.py "$@"
}
