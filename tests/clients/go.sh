#!/usr/bin/env bash
# Go's net/http.
# usage: go.sh BINARY
. "$(dirname "$0")/lib.sh"
need go golang-go
cat > "$WORK/fetch.go" <<'GO'
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
GO
(cd "$WORK" && GOCACHE="$CACHE/go" go build -o fetch fetch.go)
obeys "$WORK/fetch"
