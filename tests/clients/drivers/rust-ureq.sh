# Rust ureq
#
# `RootCerts::PlatformVerifier`: it has roots of its own.
family='Go and Rust'
quick=yes
install() { crate ureq --features platform-verifier; }
version() { crate_version ureq; }
recipe fetch.rs <<'END'
use ureq::tls::{RootCerts, TlsConfig};

fn main() {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let agent = ureq::Agent::config_builder().tls_config(tls).http_status_as_error(false).build().new_agent();
    for url in std::env::args().skip(1) {
        println!("{url} {:?}", agent.get(&url).call().map(|answer| answer.status()));
    }
}
END
fetch() {
    politely run ./fetch "$@"
}
