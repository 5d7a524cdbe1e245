# Go net/http
family='Go and Rust'
install() { debian golang-go; }
version() { go version | sed 's/go version go\([^ ]*\).*/\1/'; }
recipe fetch.go <<'END'
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	for _, url := range os.Args[1:] {
		answer, err := http.Get(url)
		if err != nil {
			fmt.Println(url, err)
			continue
		}
		answer.Body.Close()
		fmt.Println(url, answer.Status)
	}
}
END
fetch() {
    [ -x "$CACHE/go/fetch" ] || GOCACHE=$CACHE/go/cache go build -o "$CACHE/go/fetch" fetch.go
    politely run "$CACHE/go/fetch" "$@"
}
