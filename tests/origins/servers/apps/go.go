// The application of backend.py for Go's net/http. usage: go.go DOCROOT CERT KEY KIND=PORT…
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func pieces(w http.ResponseWriter, pause time.Duration, all ...string) {
	w.Header().Set("Content-Type", "text/plain")
	for i, piece := range all {
		if i > 0 {
			time.Sleep(pause)
		}
		io.WriteString(w, piece)
		w.(http.Flusher).Flush()
	}
}

func app(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/app/")
	if name == "limited" || name == "early" {
		text(w, 413, "too large")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch name {
	case "chunked":
		pieces(w, 20*time.Millisecond, "one ", "two ", "three")
	case "trailers":
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "body with a trailer")
		w.Header().Set("X-Sum", "19")
	case "close":
		w.Header().Set("Connection", "close")
		pieces(w, 0, "until the ", "connection ends")
	case "204":
		w.Header().Set("X-Kind", "none")
		w.WriteHeader(204)
	case "hints":
		w.Header().Set("Link", "</style.css>; rel=preload; as=style")
		w.WriteHeader(103)
		time.Sleep(50 * time.Millisecond)
		text(w, 200, "after hints")
	case "headers":
		for i := 0; i < 30; i++ {
			w.Header().Set(fmt.Sprintf("X-Long-%d", i), strings.Repeat(string(rune('a'+i)), 1000))
		}
		text(w, 200, "30 KB of fields")
	case "cookies":
		for _, cookie := range []string{"a=1; Path=/", "b=1; Path=/; HttpOnly", "c=2; Max-Age=60"} {
			w.Header().Add("Set-Cookie", cookie)
		}
		text(w, 200, "cookies")
	case "pause":
		pieces(w, 3*time.Second, "before ", "after")
	case "late":
		time.Sleep(3 * time.Second)
		text(w, 200, "late")
	case "slow":
		time.Sleep(100 * time.Millisecond)
		text(w, 200, "slow")
	case "redirect":
		w.Header().Set("Location", "/app/elsewhere?x=1#part")
		text(w, 307, "elsewhere")
	case "teapot":
		text(w, 418, "short and stout")
	case "big":
		text(w, 200, strings.Repeat("0123456789abcdef", 1<<16))
	case "cut":
		w.Header().Set("Content-Length", "100")
		pieces(w, 0, "ten bytes.")
		panic(http.ErrAbortHandler)
	case "reset", "closed":
		panic(http.ErrAbortHandler)
	default:
		fields := [][]string{{"Host", r.Host}}
		for name, values := range r.Header {
			for _, value := range values {
				fields = append(fields, []string{name, value})
			}
		}
		trailers := [][]string{}
		for name, values := range r.Trailer {
			trailers = append(trailers, []string{name, strings.Join(values, ", ")})
		}
		sum := sha256.Sum256(body)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "target": r.RequestURI, "fields": fields,
			"length": len(body), "sha256": hex.EncodeToString(sum[:]), "trailers": trailers})
	}
}

func main() {
	files := http.FileServer(http.Dir(os.Args[1]))
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/app/"):
			app(w, r)
		case r.URL.Path == "/old":
			http.Redirect(w, r, "/index.html?", 301)
		default:
			files.ServeHTTP(w, r)
		}
	})
	cert, err := tls.LoadX509KeyPair(os.Args[2], os.Args[3])
	if err != nil {
		panic(err)
	}
	for _, listener := range os.Args[4:] {
		kind, port, _ := strings.Cut(listener, "=")
		server := &http.Server{Addr: "127.0.0.1:" + port, Handler: serve, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
		if strings.HasPrefix(kind, "idle") {
			server.IdleTimeout = time.Second
		}
		if strings.HasSuffix(kind, "tls") {
			server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		}
		if strings.HasSuffix(kind, "http") {
			go server.ListenAndServe()
		} else {
			go server.ListenAndServeTLS("", "")
		}
	}
	select {}
}
