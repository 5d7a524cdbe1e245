/** Path of the command `politely`. Throws if there is no package for this platform. */
export function binary(): string;

/** Starts a proxy on a free loopback port, with options of `politely run`. It stops when this process ends. */
export function start(...options: string[]): Promise<Proxy>;

export interface Proxy {
  /** `http://127.0.0.1:PORT` */
  url: string;
  /** The certificates to trust, PEM: the system's and the proxy's. */
  ca: string;
  /** The file that they are in. */
  caFile: string;
  /** What `politely run` gives its command: proxy variables and certificates. For child processes. */
  environment: Record<string, string>;
  /** Options of a crawler. Takes Crawlee's class. */
  crawlee<C>(ProxyConfiguration: new (options: { proxyUrls: string[] }) => C): {
    proxyConfiguration: C;
    sessionPoolOptions: { blockedStatusCodes: number[] };
    navigationTimeoutSecs: number;
    requestHandlerTimeoutSecs: number;
  };
  /** Options of Playwright's `newContext`. The proxy verifies the sites' certificates, the browser does not. */
  playwright(): { proxy: { server: string }; ignoreHTTPSErrors: boolean };
  /** Stops the proxy, which prints its summary on standard error. */
  close(): Promise<void>;
}
