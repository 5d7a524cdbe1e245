// The application of backend.py for Node. usage: node.mjs DOCROOT CERT KEY KIND=PORT…
import cluster from "node:cluster";
import crypto from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import path from "node:path";
import zlib from "node:zlib";
import { setTimeout as sleep } from "node:timers/promises";

const [root, cert, key, ...listeners] = process.argv.slice(2);
const tls = { cert: fs.readFileSync(cert), key: fs.readFileSync(key) };
const limits = { maxHeaderSize: 128 * 1024 };

const plain = { "content-type": "text/plain" };
const long = () => Object.fromEntries([...Array(30).keys()].map((i) => [`x-long-${i}`, String.fromCharCode(97 + i).repeat(1000)]));

const app = {
  async chunked(_, response) {
    response.writeHead(200, plain);
    for (const piece of ["one ", "two ", "three"]) {
      response.write(piece);
      await sleep(20);
    }
    response.end();
  },
  async trailers(request, response) {
    response.writeHead(200, { ...plain, trailer: "x-sum" });
    response.write("body with a trailer");
    response.addTrailers({ "x-sum": "19" });
    response.end();
  },
  async close(request, response) {
    if (request.httpVersion !== "2.0") {
      response.useChunkedEncodingByDefault = false;
      response.setHeader("connection", "close");
    }
    response.writeHead(200, plain);
    response.write("until the ");
    response.end("connection ends");
  },
  async 204(_, response) {
    response.writeHead(204, { "x-kind": "none" }).end();
  },
  async hints(_, response) {
    response.writeEarlyHints({ link: "</style.css>; rel=preload; as=style" });
    await sleep(50);
    response.writeHead(200, plain).end("after hints");
  },
  async headers(_, response) {
    response.writeHead(200, long()).end("30 KB of fields");
  },
  async cookies(_, response) {
    response.writeHead(200, { "set-cookie": ["a=1; Path=/", "b=1; Path=/; HttpOnly", "c=2; Expires=Wed, 09 Jun 2032 10:18:14 GMT"] });
    response.end("cookies");
  },
  async gzip(_, response) {
    response.writeHead(200, { ...plain, "content-encoding": "gzip", vary: "accept-encoding" });
    response.end(zlib.gzipSync("compressed by the application ".repeat(50)));
  },
  async pause(_, response) {
    response.writeHead(200, plain);
    response.write("before ");
    await sleep(3000);
    response.end("after");
  },
  async late(_, response) {
    await sleep(3000);
    response.writeHead(200, plain).end("late");
  },
  async slow(_, response) {
    await sleep(100);
    response.writeHead(200, plain).end("slow");
  },
  async redirect(_, response) {
    response.writeHead(307, { location: "/app/elsewhere?x=1#part" }).end("elsewhere");
  },
  async teapot(_, response) {
    response.writeHead(418, { "x-kind": "odd" }).end("short and stout");
  },
  async big(_, response) {
    response.writeHead(200, { "content-length": 1 << 20 }).end(Buffer.alloc(1 << 20, "0123456789abcdef"));
  },
  async cut(_, response) {
    response.writeHead(200, { "content-length": 100 });
    response.write("ten bytes.");
    await sleep(50);
    (response.stream ?? response).destroy();
  },
  async reset(request, response) {
    response.stream ? response.stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR) : request.socket.destroy();
  },
  async closed(request, response) {
    (response.stream?.session ?? request.socket).destroy();
  },
};

function early(request, response) {
  response.writeHead(413, { "content-length": 9 });
  response.end("too large");
}

function echo(request, response, body) {
  const names = request.rawHeaders.filter((_, i) => i % 2 === 0);
  const fields = names.map((name, i) => [name, request.rawHeaders[2 * i + 1]]).filter(([name]) => !name.startsWith(":"));
  const trailers = Object.entries(request.trailers);
  const sha256 = crypto.createHash("sha256").update(body).digest("hex");
  const told = { method: request.method, target: request.url, fields, length: body.length, sha256, trailers };
  const text = JSON.stringify(told);
  response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) }).end(text);
}

function file(request, response) {
  const name = path.join(root, request.url === "/" ? "/index.html" : request.url.split("?")[0]);
  if (request.url === "/old") return response.writeHead(301, { location: "/index.html" }).end("moved");
  if (!name.startsWith(root + "/") || !fs.existsSync(name) || !fs.statSync(name).isFile()) return response.writeHead(404, plain).end("not found");
  if (!["GET", "HEAD"].includes(request.method)) return response.writeHead(405, { allow: "GET, HEAD" }).end();
  const body = fs.readFileSync(name);
  const fields = { ...plain, etag: `"${body.length}"`, "last-modified": fs.statSync(name).mtime.toUTCString() };
  if (request.headers["if-modified-since"]) return response.writeHead(304, fields).end();
  const span = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
  if (!span) return response.writeHead(200, { ...fields, "content-length": body.length }).end(body);
  const part = body.subarray(Number(span[1]), Number(span[2]) + 1);
  response.writeHead(206, { ...fields, "content-range": `bytes ${span[1]}-${span[2]}/${body.length}`, "content-length": part.length }).end(part);
}

async function serve(request, response) {
  request.on("error", () => {});
  response.on("error", () => {});
  const named = request.url.split("?")[0];
  if (named === "/app/early" || named === "/app/limited") return early(request, response);
  const pieces = [];
  try {
    for await (const piece of request) pieces.push(piece);
  } catch {
    return;
  }
  if (!named.startsWith("/app/")) return file(request, response);
  const answer = app[named.slice(5)];
  return answer ? answer(request, response) : echo(request, response, Buffer.concat(pieces));
}

function listen() {
  for (const listener of listeners) {
    const [kind, port] = listener.split("=");
    const [habit, protocol] = kind.includes("-") ? kind.split("-") : ["", kind];
    const settings = habit === "one" ? { maxConcurrentStreams: 1 } : {};
    const server = {
      http: () => http.createServer(limits, serve),
      tls: () => https.createServer({ ...tls, ...limits }, serve),
      h2: () => http2.createSecureServer({ ...tls, allowHTTP1: true, settings, maxHeaderListPairs: 1000, maxSendHeaderBlockLength: 1 << 20 }, serve),
    }[protocol]();
    if (habit === "few" && protocol !== "h2") server.maxRequestsPerSocket = 3;
    if (habit === "few") {
      // Says that it ends, and serves what has come by then.
      server.on("session", (session) => {
        let streams = 0;
        session.on("stream", () => ++streams === 3 && session.close());
      });
    }
    if (habit === "idle") {
      server.keepAliveTimeout = 1000;
      server.on("session", (session) => session.setTimeout(1000, () => session.close()));
    }
    server.on("clientError", (_, socket) => socket.destroy());
    server.listen(Number(port), "127.0.0.1");
  }
}

process.on("uncaughtException", (error) => console.error(error));
// Another takes the place of one that ends in the middle.
cluster.schedulingPolicy = cluster.SCHED_NONE;
if (cluster.isPrimary) {
  cluster.on("exit", () => cluster.fork());
  cluster.fork();
} else {
  listen();
}
