"""A site on 0.0.0.0 that says its port: rules, and a crawl-delay on 127.0.0.2."""

import http.server
import socketserver


class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self):
        body = b"hello\n"
        if self.path == "/robots.txt":
            body = b"User-agent: *\nDisallow: /private\nAllow: /private/open\n"
            if self.headers["Host"].startswith("127.0.0.2"):
                body = b"User-agent: *\nCrawl-delay: 200\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


with Server(("0.0.0.0", 0), Site) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
