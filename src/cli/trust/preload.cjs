// Loaded by NODE_OPTIONS: makes Node.js use the proxy of its environment, in `http` and `https` with any of their agents, and in `fetch`,
// built in or undici's. Versions from 24 (and 22.21) do so themselves for `fetch` and for agents with `proxyEnv`, such as the global ones.
"use strict";
let proxy;
try {
  proxy = new URL(process.env.https_proxy || process.env.http_proxy);
} catch {
  // A missing or unusable proxy must not stop the program.
}
if (proxy?.protocol === "http:") {
  const [http, https, net, tls] = ["http", "https", "net", "tls"].map((name) => require(name));
  const bare = (host) => host.replace(/[[\]]/g, "");
  const [hostname, port] = [bare(proxy.hostname), Number(proxy.port) || 80];
  const direct = (process.env.no_proxy || "").split(",").filter(Boolean);

  // Uses CONNECT for plain HTTP, too: the proxy recognises the protocol inside.
  const tunnel = (host, to, done) => {
    const name = host.includes(":") ? `[${host}]` : host;
    const socket = net.connect(port, hostname);
    let head = Buffer.alloc(0);
    const end = (error) => {
      socket.removeListener("error", end).removeListener("close", closed).removeListener("data", read);
      if (error) socket.destroy();
      done(error, socket);
    };
    const closed = () => end(new Error(`the proxy closed the connection to ${name}:${to}`));
    const read = (piece) => {
      head = Buffer.concat([head, piece]);
      const length = head.indexOf("\r\n\r\n");
      if (length < 0) return;
      const said = head.toString("latin1", 0, head.indexOf("\r\n"));
      if (!/^HTTP\/1\.[01] 200/.test(said)) return end(new Error(`the proxy refuses ${name}:${to}: ${said}`));
      const rest = head.subarray(length + 4);
      end(null);
      if (rest.length) socket.unshift(rest);
    };
    socket.on("error", end).on("close", closed).on("data", read);
    socket.write(`CONNECT ${name}:${to} HTTP/1.1\r\nHost: ${name}:${to}\r\nUser-Agent: node\r\n\r\n`);
  };

  for (const [module, usual] of [[http, 80], [https, 443]]) {
    const connect = module.Agent.prototype.createConnection;
    module.Agent.prototype.createConnection = function (options, done) {
      const host = options.host || options.hostname || "localhost";
      const isProxy = bare(host) === hostname && Number(options.port) === port;
      if (typeof options !== "object" || typeof done !== "function" || options.socketPath || options.socket ||
          this.options?.proxyEnv || isProxy || direct.includes(host)) {
        return connect.apply(this, arguments);
      }
      tunnel(host, options.port || usual, (error, socket) => {
        if (error) return done(error);
        done(null, module === http ? socket : connect.call(this, { ...options, socket }));
      });
    };
  }

  // The first use of an undici global creates the dispatcher that all versions of undici in the process share.
  const SHARED = Symbol.for("undici.globalDispatcher.1");
  const readsEnvironment = process.allowedNodeEnvironmentFlags.has("--use-env-proxy");
  if (!readsEnvironment) void globalThis.Headers;
  const Agent = globalThis[SHARED]?.constructor;
  if (Agent && !readsEnvironment) {
    const connect = (options, done) => {
      const host = bare(options.hostname);
      const isTls = options.protocol === "https:";
      const to = options.port || (isTls ? 443 : 80);
      const secure = (error, socket) => {
        if (error || !isTls) return done(error, socket);
        const servername = options.servername || (net.isIP(host) ? undefined : host);
        const inside = tls.connect({ socket, servername, host, ALPNProtocols: ["http/1.1"] });
        inside.once("error", done).once("secureConnect", () => {
          inside.removeListener("error", done);
          done(null, inside);
        });
      };
      if (!direct.includes(host)) return tunnel(host, to, secure);
      const socket = net.connect(to, host);
      socket.once("error", done).once("connect", () => {
        socket.removeListener("error", done);
        secure(null, socket);
      });
    };
    Object.defineProperty(globalThis, SHARED, {
      value: new Agent({ connect }), writable: true, enumerable: false, configurable: false,
    });
  }
}
