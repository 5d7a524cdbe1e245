# gallery-dl
#
# After a 429 it tries again with `-o retry-codes=429`, and for pages after `--sleep-429`.
family='Package managers and the like'
quick=yes
returns=yes
sees='/ /image.svg'
line='politely run gallery-dl --http-timeout 660 -o retry-codes=429 URL…'
install() { pypi gallery-dl; }
version() { pypi_version gallery-dl; }
crawl() {
    politely run gallery-dl --http-timeout 660 --sleep-429 4 -o retry-codes=429 --no-skip "${@/#/generic:}"
}
