# pip
family='Package managers and the like'
returns=yes
install() { pypi pip; }
version() { pypi_version pip; }
fetch() {
    for url; do
        politely run pip download --no-deps "$url#egg=x"
    done
}
