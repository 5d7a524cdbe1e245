//! Why a program that was run may have bypassed the proxy, and what helps.

/// What makes a program that reads no proxy variables use a proxy.
pub(super) fn cure(name: &str) -> &'static str {
    match name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "node" | "npm" | "npx" | "nodejs" => {
            "Node.js takes the proxy from the environment for http, https and fetch; a client that opens its own sockets needs a \
            proxy agent; with `--isolate` nothing can bypass the proxy"
        }
        "java" | "gradle" | "mvn" | "jbang" => {
            "an HTTP client that is built with its own proxy, or with Proxy.NO_PROXY, ignores \
            -Dhttps.proxyHost; remove that setting"
        }
        "php" => {
            "PHP's streams read no variable: set `proxy` and `request_fulluri` in stream_context_set_default, or use curl"
        }
        "ruby" => "Mechanize reads no variable: call `set_proxy` with the host and port of ENV[\"https_proxy\"]",
        "httrack" => "httrack takes its proxy from -P host:port, for http alone",
        "python" | "uv" | "pipx" => {
            "aiohttp reads HTTPS_PROXY only in a ClientSession(trust_env=True), urllib3 in a ProxyManager alone"
        }
        _ => "if it does not read HTTPS_PROXY, set the proxy with its own option; $HTTPS_PROXY holds the address",
    }
}
