// A site that answers 200 to what is signed well, and says why not to anything else. It verifies by Cloudflare's packages, which know
// nothing of the proxy: `http-message-sig` for the dictionary form, `web-bot-auth` for the string of older drafts.
//   node origin.mjs CERTIFICATE KEY DIRECTORY-FILE    prints its ports for http and https; one line for each request follows
// DIRECTORY-FILE holds the URL of the directory by the time of the first request. /challenged/… asks for a signature where there is none.
import { createHash, webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import { component, verifySignature, webcrypto as ed25519 } from "http-message-sig";
import { jwkToKeyID, verify as verifyString } from "web-bot-auth";
import { helpers, verifierFromJWK } from "web-bot-auth/crypto";

const [certificate, key, file] = process.argv.slice(2);
const AGENT = "https://bot.example";
const PATH = "/.well-known/http-message-signatures-directory";
const CARD = "/signature-agent-card";
const now = () => Math.floor(Date.now() / 1000);

async function keyFrom(jwk) {
  const imported = await webcrypto.subtle.importKey("jwk", jwk, { name: "Ed25519" }, true, ["verify"]);
  return ed25519.verifier(imported);
}

// The card is at the URL that it names, and leads to the directory.
async function card(url) {
  const told = await (await fetch(url.replace(PATH, CARD))).json();
  if (told.client_id !== AGENT + CARD || told.jwks_uri !== AGENT + PATH) throw Error(`the card names ${told.client_id} and ${told.jwks_uri}`);
}

// The directory, and the proof in it that its keys are published by their holders.
async function directory() {
  const url = readFileSync(file, "utf8").trim();
  await card(url);
  const response = await fetch(url);
  const body = await response.text();
  const type = response.headers.get("content-type");
  if (response.status !== 200 || type !== "application/http-message-signatures-directory+json") throw Error(`${response.status} ${type}`);
  const digest = `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
  if (response.headers.get("content-digest") !== digest) throw Error("the digest is another");
  const { keys } = JSON.parse(body);
  const message = {
    kind: "response",
    status: 200,
    fields: [...response.headers].map(([name, value]) => ({ name, value })),
    request: { kind: "request", method: "GET", targetUri: AGENT + PATH, fields: [] },
  };
  for (const [index, jwk] of keys.entries()) {
    if (await jwkToKeyID(jwk, helpers.WEBCRYPTO_SHA256, helpers.BASE64URL_DECODE) !== jwk.kid) throw Error("the key has another name");
    await verifySignature(message, {
      label: index === 0 ? "binding" : `binding${index}`,
      policy: {
        algorithms: ["ed25519"],
        requiredComponents: [component("@authority", { req: true }), "content-digest"],
        requiredParameters: ["created", "expires", "keyid", "tag"],
        now: now(),
        validate: ({ parameters }) => parameters.keyid === jwk.kid && parameters.tag === "http-message-signatures-directory",
      },
      resolveVerifier: () => keyFrom(jwk),
    });
  }
  return new Map(keys.map((jwk) => [jwk.kid, jwk]));
}

async function judge(request, scheme) {
  const headers = request.headers;
  const authority = headers[":authority"] ?? headers.host;
  const agent = headers["signature-agent"];
  if (!agent) return "unsigned";
  const keys = await directory();
  const url = `${scheme}://${authority}${request.url}`;
  if (agent.startsWith('"')) {
    const plain = Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith(":")));
    await verifyString({ method: request.method, url, headers: plain }, async (data, signature, params) =>
      (await verifierFromJWK(keys.get(params.keyid)))(data, signature, params));
    return "string";
  }
  const fields = Object.entries(headers).filter(([name]) => !name.startsWith(":")).map(([name, value]) => ({ name, value: String(value) }));
  await verifySignature({ kind: "request", method: request.method, targetUri: url, fields }, {
    policy: {
      algorithms: ["ed25519"],
      requiredComponents: ["@authority", component("signature-agent", { key: "sig1" })],
      requiredParameters: ["created", "expires", "keyid", "tag"],
      maxAge: 60,
      now: now(),
      validate: ({ parameters }) => parameters.tag === "web-bot-auth" && parameters.expires - parameters.created <= 86400,
    },
    resolveVerifier: (candidate) => keyFrom(keys.get(candidate.parameters.keyid)),
  });
  return "dictionary";
}

function answer(scheme) {
  return async (request, response) => {
    const told = await judge(request, scheme).catch((error) => `REFUSED ${error.code ?? ""} ${error.message}`);
    console.log(`${scheme} ${request.httpVersion} ${request.method} ${request.url} ${told}`);
    const isGood = told === "dictionary" || told === "string";
    if (request.url.startsWith("/challenged") && told === "unsigned") {
      response.setHeader("Accept-Signature", 'sig1=("@authority" "signature-agent";key="sig1");tag="web-bot-auth"');
    }
    response.statusCode = isGood ? 200 : 403;
    response.end(request.url === "/robots.txt" && isGood ? "User-agent: *\nDisallow: /no\n" : `${told}\n`);
  };
}

const plain = http.createServer(answer("http")).listen(0, "127.0.0.1");
const options = { cert: readFileSync(certificate), key: readFileSync(key), allowHTTP1: true };
const secure = http2.createSecureServer(options, answer("https")).listen(0, "127.0.0.1");
await Promise.all([plain, secure].map((server) => server.listening || new Promise((ready) => server.once("listening", ready))));
console.log(`${plain.address().port} ${secure.address().port}`);
