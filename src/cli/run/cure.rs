//! Advice for programs that may have bypassed the proxy.

/// Advice on how to make this program use the proxy, if it does not read proxy variables.
pub(super) fn cure(name: &str) -> &'static str {
    match name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "node" | "npm" | "npx" | "nodejs" => {
            "Node.js takes the proxy from the environment for http, https and fetch; a client that opens its own sockets needs a \
            proxy agent"
        }
        "java" | "gradle" | "mvn" | "jbang" => {
            "HttpClient 5 reads -Dhttps.proxyHost only in HttpClients.createSystem(); a client that is built with its own \
            proxy, or with Proxy.NO_PROXY, does not: remove that setting"
        }
        "php" => {
            "PHP's streams read no variable: set `proxy` and `request_fulluri` in stream_context_set_default, or use curl"
        }
        "ruby" => {
            "Mechanize and http.rb read no variable: call `set_proxy` or `HTTP.via` with the host and port of \
            ENV[\"https_proxy\"]"
        }
        "cadaver" => "cadaver takes its proxy from -p host:port",
        "httrack" => "httrack takes its proxy from -P host:port, for http only",
        "python" | "uv" | "pipx" => {
            "to use the proxy, aiohttp needs ClientSession(trust_env=True), urllib3 a ProxyManager, Tornado its curl client, \
            treq a ProxyAgent, tls-client `proxies`, and trafilatura's fetch_url pycurl; $HTTPS_PROXY holds the address"
        }
        _ => {
            "if the program does not read HTTPS_PROXY, set the proxy with its own option; $HTTPS_PROXY holds the address"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_depends_on_the_program() {
        for (name, part) in [
            ("ruby3.1", "HTTP.via"),
            ("java", "createSystem"),
            ("python3.11", "ProxyAgent"),
            ("cadaver", "-p host:port"),
            ("crawler", "its own option"),
        ] {
            assert!(cure(name).contains(part), "{name}: {}", cure(name));
        }
    }
}
