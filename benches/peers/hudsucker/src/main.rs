//! hudsucker with a handler that does nothing: hudsucker-peer ADDRESS CA.crt CA.key ORIGIN-CA.crt. Connections to origins are
//! kept by hyper's client, as hudsucker sets it up.

use hudsucker::{
    Proxy,
    certificate_authority::RcgenAuthority,
    rcgen::{Issuer, KeyPair},
};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let read = |i: usize| std::fs::read_to_string(&arguments[i]).expect("readable file");
    ring::default_provider().install_default().expect("first provider");
    let key = KeyPair::from_pem(&read(3)).expect("CA key");
    let issuer = Issuer::from_ca_cert_pem(&read(2), key).expect("CA certificate");
    let ca = RcgenAuthority::new(issuer, 10_000, ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&arguments[4]).expect("origin CA") {
        roots.add(certificate.expect("PEM")).expect("root");
    }
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    // Accepted sockets inherit TCP_NODELAY; hudsucker does not set it, and then each handshake waits 40 ms for an ACK.
    let listener = tokio::net::TcpSocket::new_v4().expect("socket");
    listener.set_reuseaddr(true).expect("SO_REUSEADDR");
    listener.set_nodelay(true).expect("TCP_NODELAY");
    listener.bind(arguments[1].parse().expect("ADDR")).expect("free address");
    let proxy = Proxy::builder()
        .with_listener(listener.listen(4096).expect("listen"))
        .with_ca(ca)
        .with_http_connector(connector)
        .build()
        .expect("proxy");
    proxy.start().await.expect("serve");
}
