# git
family='Package managers and the like'
quick=yes
suffix='/info/refs?service=git-upload-pack'
install() { debian git; }
version() { git --version | sed 's/git version //'; }
fetch() {
    for url; do
        politely run git ls-remote "$url"
    done
}
