# Selenium
#
# [browsers](browsers.md#selenium)
family='Browsers'
sees='/ /style.css /script.js /image.svg /data.json'
install() { debian chromium chromium-driver libnss3-tools; pypi selenium; }
version() { pypi_version selenium; }
recipe fetch.py <<'END'
import sys
import time
from selenium import webdriver

options = webdriver.ChromeOptions()
for argument in ["--headless", "--no-sandbox", "--disable-background-networking"]:
    options.add_argument(argument)
browser = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
for url in sys.argv[1:]:
    browser.get(url)
    time.sleep(1)
    print(url, browser.title)
browser.quit()
END
crawl() {
    politely run python fetch.py "$@"
}
