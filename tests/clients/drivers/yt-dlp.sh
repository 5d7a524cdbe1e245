# yt-dlp
#
# `--compat-options no-certifi`: it has roots of its own.
family='Package managers and the like'
install() { pypi yt-dlp; }
version() { pypi_version yt-dlp; }
fetch() {
    politely run yt-dlp --compat-options no-certifi --ignore-errors "$@"
}
