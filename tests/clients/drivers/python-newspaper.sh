# newspaper4k
#
# `requests_params["timeout"] = 660`. Without `allow_binary_content` it asks five times for each page.
family='Crawlers'
quick=yes
install() { pypi 'newspaper4k'; }
version() { pypi_version newspaper4k; }
recipe fetch.py <<'END'
import sys
import newspaper

config = newspaper.Config()
config.allow_binary_content = True
config.requests_params["timeout"] = 660
for url in sys.argv[1:]:
    article = newspaper.Article(url, config=config)
    try:
        article.download()
        article.parse()
        print(url, article.title)
    except newspaper.ArticleException as refused:
        print(url, refused)
END
fetch() {
    politely run python fetch.py "$@"
}
