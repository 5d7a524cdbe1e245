"use strict";
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { readFileSync } = require("node:fs");

// Longer than `politely run` holds a request for its turn (`--max-wait`: 10 minutes). Seconds.
const TIMEOUT = 660;

/** Path of the command, from the package for this platform. */
exports.binary = function binary() {
  const platform = `politely-proxy-${process.platform}-${process.arch}`;
  for (const name of [platform, `${platform}-musl`]) {
    try {
      return require.resolve(`${name}/politely`);
    } catch {
      // npm has installed the one for this system's C library.
    }
  }
  throw new Error(`politely has no package ${platform}, or it was not installed: npm install without --omit=optional`);
};

/** Starts a proxy on a free loopback port, with options of `politely run`. It stops when this process ends, in whatever way. */
exports.start = async function start(...options) {
  // `cat` reads from this process: it ends, and the proxy with it, when this process does.
  const command = ["sh", "-c", "env -0 && printf '\\0' && exec cat"];
  const child = spawn(exports.binary(), ["run", ...options, "--", ...command], {
    stdio: ["pipe", "pipe", "inherit"],
    // Ctrl-C is for this program, which may still finish its requests.
    detached: true,
  });
  const ended = once(child, "exit");
  ended.catch(() => {});
  let printed = "";
  for await (const chunk of child.stdout.setEncoding("utf8").iterator({ destroyOnReturn: false })) {
    printed += chunk;
    if (printed.endsWith("\0\0")) break;
  }
  if (!printed.endsWith("\0\0")) throw new Error(`politely did not start: exit code ${(await ended)[0]}`);
  // The process may end while the proxy runs.
  for (const handle of [child, child.stdin, child.stdout]) handle.unref();
  const variables = printed.slice(0, -2).split("\0").map((variable) => variable.split(/=(.*)/s, 2));
  return new RunningProxy(Object.fromEntries(variables), async () => {
    child.ref();
    child.stdin.end();
    await ended;
  });
};

class RunningProxy {
  constructor(environment, close) {
    this.environment = environment;
    this.url = environment.http_proxy;
    this.caFile = environment.SSL_CERT_FILE;
    this.ca = readFileSync(this.caFile, "utf8");
    this.close = close;
  }

  crawlee(ProxyConfiguration) {
    return {
      proxyConfiguration: new ProxyConfiguration({ proxyUrls: [this.url] }),
      // A refusal is an answer: another session would be refused as well.
      sessionPoolOptions: { blockedStatusCodes: [] },
      navigationTimeoutSecs: TIMEOUT,
      requestHandlerTimeoutSecs: TIMEOUT,
    };
  }

  playwright() {
    return { proxy: { server: this.url }, ignoreHTTPSErrors: true };
  }
}
