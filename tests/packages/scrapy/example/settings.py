# As `scrapy startproject` writes it, with all that the add-on has to see to.
BOT_NAME = "example"
SPIDER_MODULES = ["example.spiders"]
ROBOTSTXT_OBEY = True
AUTOTHROTTLE_ENABLED = True
TELNETCONSOLE_ENABLED = False
DOWNLOAD_VERIFY_CERTIFICATES = True

ADDONS = {"politely.scrapy.Addon": 500}
POLITELY_OPTIONS = ["-v"]
