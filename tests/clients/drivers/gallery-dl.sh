# gallery-dl
#
# `--sleep-429`: how long it waits after a 429 for a page.
family='Package managers and the like'
quick=yes
returns=yes
sees='/ /image.svg'
line='politely run gallery-dl --http-timeout 660 -o "retry-codes=[429]" URL…'
install() { pypi gallery-dl; }
version() { pypi_version gallery-dl; }
crawl() {
    politely run gallery-dl --http-timeout 660 --sleep-429 4 -o "retry-codes=[429]" --no-skip "${@/#/generic:}"
}
