//! Origins that rustls cannot speak to, and the second, wider TLS that can. The servers are `openssl s_server`, which knows nothing
//! of us, and an origin behind OpenSSL for what those do not serve.

use crate::support::websocket::WebSocket;
use crate::support::{Alpn, Conduct, Origin, Parent, Protocol, Proxy, RawOrigin, Reply, Seen, assert_refused, test_ca};
use futures_util::stream::{self, StreamExt};
use openssl::bn::{BigNum, MsbOption};
use openssl::dh::Dh;
use openssl::ssl::{
    AlpnError, NameType, SniError, Ssl, SslAcceptor, SslAlert, SslFiletype, SslMethod, SslVersion, select_next_proto,
};
use std::path::Path;
use std::process::{Command as Blocking, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// An authority, and its certificates by kind: `KIND.pem` and `KIND.key`.
struct Certificates(tempfile::TempDir);

impl Certificates {
    /// Two authorities of ECDSA, one of P-521; `san` is what certificates say they are for, where their kind says so.
    fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = r#"
            set -e
            ec() { echo "-newkey ec -pkeyopt ec_paramgen_curve:$1"; }
            authority() { openssl req -x509 $2 -nodes -keyout $1.key -out $1.pem -subj "/CN=$1" -days 30; }
            authority ca "$(ec P-256)"; authority ca521 "$(ec P-521)"; authority other "$(ec P-256)"
            # KIND, how its key is made, the lines of its extensions, the name, who signs
            certificate() {
                openssl req -new $2 -nodes -keyout $1.key -out $1.csr -subj "/CN=$4"
                printf "$3" > $1.ext
                if [ -n "$3" ]; then extensions="-extfile $1.ext"; else extensions=; fi
                openssl x509 -req -in $1.csr -CA $5.pem -CAkey $5.key $extensions -out $1.pem -days ${6:-30}
            }
            san="subjectAltName=DNS:a.localhost,DNS:odd-.localhost"
            certificate rsa "-newkey rsa:2048" "$san" x ca
            certificate p256 "$(ec P-256)" "$san" x ca
            certificate p384 "$(ec P-384)" "$san" x ca
            certificate p521 "$(ec P-521)" "$san" x ca
            certificate by521 "$(ec P-256)" "$san" x ca521
            certificate ed25519 "-newkey ed25519" "$san" x ca
            certificate ed448 "-newkey ed448" "$san" x ca
            certificate pss "-newkey rsa-pss -pkeyopt rsa_keygen_bits:2048" "$san" x ca
            certificate cn "$(ec P-256)" "basicConstraints=CA:FALSE" a.localhost ca
            certificate cn-other "$(ec P-256)" "basicConstraints=CA:FALSE" b.localhost ca
            certificate cn-and-san "$(ec P-256)" "subjectAltName=DNS:b.localhost" a.localhost ca
            certificate v1 "$(ec P-256)" "" a.localhost ca
            certificate v1-other "$(ec P-256)" "" b.localhost ca
            certificate v1-untrusted "$(ec P-256)" "" a.localhost other
            certificate p521-other "$(ec P-521)" "subjectAltName=DNS:b.localhost" x ca
            certificate p521-untrusted "$(ec P-521)" "$san" x other
            certificate weak "-newkey rsa:1024" "$san" x ca
            certificate underscore "$(ec P-256)" "subjectAltName=DNS:a_b.c.localhost" x ca
            certificate hyphen "$(ec P-256)" "subjectAltName=DNS:a-b.c.localhost" x ca
            # What `tls: legacy` is about: hashes and keys of long ago.
            certificate sha1 "-newkey rsa:1024 -sha1" "$san" x ca; certificate tiny "-newkey rsa:768" "$san" x ca
            authority old "-newkey rsa:2048"
            for hash in md5 sha1; do
                openssl x509 -req -in rsa.csr -CA old.pem -CAkey old.key -$hash -extfile rsa.ext -out by$hash.pem -days 30
                cp rsa.key by$hash.key
            done
            # More than rustls takes.
            certificate big "-newkey rsa:8200 -pkeyopt rsa_keygen_primes:5" "$san" x ca
            # What nothing takes.
            openssl dsaparam -noout -genkey -out dsa.key 1024
            openssl req -new -key dsa.key -out dsa.csr -subj "/CN=x"
            openssl x509 -req -in dsa.csr -CA ca.pem -CAkey ca.key -extfile rsa.ext -out dsa.pem -days 30
            for bits in 1024 2048; do
                openssl req -x509 -newkey rsa:$bits -nodes -keyout self$bits.key -out self$bits.pem -subj "/CN=x" -addext "$san" -days 30
            done
            for bits in 4096 8192; do openssl genpkey -genparam -algorithm DH -pkeyopt group:ffdhe$bits -out dh$bits.pem; done
            # Behind others of one name that lead nowhere; and more of them than is taken.
            printf "basicConstraints=critical,CA:TRUE\nsubjectKeyIdentifier=none\nauthorityKeyIdentifier=none" > middle.ext
            openssl req -new $(ec P-256) -nodes -keyout middle.key -out middle.csr -subj "/CN=middle"
            openssl x509 -req -in middle.csr -CA ca.pem -CAkey ca.key -extfile middle.ext -out middle.pem -days 30
            certificate behind "$(ec P-256)" "$san" x middle
            for number in $(seq 3); do
                openssl req -x509 $(ec P-256) -nodes -keyout x.key -out x$number.pem -subj "/CN=x" -days 30
            done
            for number in $(seq 16); do cat x1.pem x2.pem x3.pem; done > junk.pem
            cat middle.pem > near.pem; cat x1.pem x2.pem x3.pem middle.pem > far.pem; cat junk.pem middle.pem > long.pem
            cat ca.pem ca521.pem old.pem > roots.pem; cat roots.pem other.pem > all.pem
        "#;
        let made = Blocking::new("bash").args(["-c", script]).current_dir(directory.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // Nobody looks whether they are prime.
        for bits in [1024, 2048, 3072, 4104] {
            let (mut modulus, two) = (BigNum::new().unwrap(), BigNum::from_u32(2).unwrap());
            modulus.rand(bits, MsbOption::ONE, true).unwrap();
            let group = Dh::from_pqg(modulus, None, two).unwrap().params_to_pem().unwrap();
            std::fs::write(directory.path().join(format!("dh{bits}.pem")), group).unwrap();
        }
        Certificates(directory)
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Settings that make the proxy trust the authorities.
    fn trusted(&self, hosts: &str) -> String {
        format!("egress: {{ ca_file: '{}' }}\nhosts: {{ {hosts} }}", self.file("roots.pem"))
    }
}

/// `openssl s_server` with a certificate of this kind. It says its status to whatever is asked, and closes.
struct Server {
    port: u16,
    _child: Child,
}

impl Server {
    async fn start(certificates: &Path, kind: &str, terms: &str) -> Self {
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-www"])
            .args(["-cert", &format!("{kind}.pem"), "-key", &format!("{kind}.key")])
            .args(terms.split_whitespace())
            .current_dir(certificates)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("openssl is installed");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = crate::support::within("its port", async {
            loop {
                let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("{kind} {terms}: it has ended"));
                if let Some(address) = line.strip_prefix("ACCEPT ") {
                    return address.rsplit(':').next().unwrap().parse().unwrap();
                }
            }
        })
        .await;
        // Somebody has to read what it says.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Server { port, _child: child }
    }
}

/// Kind of the server's certificate, options of the server, and a part of the expected page or error.
const CASES: &[(&str, &str, &str)] = &[
    // Servers that rustls supports.
    ("p256", "", "TLSv1.3"),
    ("rsa", "-tls1_2", "ECDHE-RSA"),
    ("ed25519", "-tls1_3", "TLSv1.3"),
    // Suites of TLS 1.2.
    ("rsa", "-tls1_2 -cipher ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES128-SHA"),
    ("rsa", "-tls1_2 -cipher ECDHE-RSA-AES256-SHA", "ECDHE-RSA-AES256-SHA"),
    ("rsa", "-tls1_2 -cipher ECDHE-RSA-AES128-SHA256", "ECDHE-RSA-AES128-SHA256"),
    ("rsa", "-tls1_2 -cipher ECDHE-RSA-AES256-SHA384", "ECDHE-RSA-AES256-SHA384"),
    ("p256", "-tls1_2 -cipher ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES128-SHA"),
    ("p256", "-tls1_2 -cipher ECDHE-ECDSA-AES256-CCM", "ECDHE-ECDSA-AES256-CCM"),
    ("rsa", "-tls1_2 -cipher AES128-SHA", "AES128-SHA"),
    ("rsa", "-tls1_2 -cipher AES256-SHA256", "AES256-SHA256"),
    ("rsa", "-tls1_2 -cipher AES128-GCM-SHA256", "AES128-GCM-SHA256"),
    ("rsa", "-tls1_2 -cipher AES256-GCM-SHA384", "AES256-GCM-SHA384"),
    ("rsa", "-tls1_2 -cipher DHE-RSA-AES128-SHA", "DHE-RSA-AES128-SHA"),
    ("rsa", "-tls1_2 -cipher DHE-RSA-AES256-GCM-SHA384", "DHE-RSA-AES256-GCM-SHA384"),
    ("rsa", "-tls1_2 -cipher DHE-RSA-CHACHA20-POLY1305", "DHE-RSA-CHACHA20-POLY1305"),
    // Certificates.
    ("p384", "", "TLSv1.3"),
    ("p521", "", "TLSv1.3"),
    ("p521", "-tls1_2", "ECDHE-ECDSA"),
    ("by521", "", "TLSv1.3"),
    ("pss", "", "TLSv1.3"),
    ("pss", "-tls1_2", "ECDHE-RSA"),
    ("ed448", "", "TLSv1.3"),
    ("ed448", "-tls1_2", "ECDHE-ECDSA"),
    ("cn", "", "TLSv1.3"),
    ("v1", "", "TLSv1.3"),
    ("v1", "-tls1_2 -cipher ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES128-SHA"),
    // Groups.
    ("p256", "-groups P-521", "TLSv1.3"),
    ("p256", "-groups X448", "TLSv1.3"),
    ("p256", "-tls1_2 -groups P-521", "ECDHE-ECDSA"),
    ("rsa", "-tls1_2 -groups X448", "ECDHE-RSA"),
    ("p256", "-tls1_3 -groups ffdhe2048", "TLSv1.3"),
    ("rsa", "-tls1_2 -cipher DHE-RSA-AES128-SHA -dhparam dh2048.pem", "DHE-RSA-AES128-SHA"),
    ("rsa", "-tls1_2 -cipher DHE-RSA-AES128-SHA -dhparam dh3072.pem", "DHE-RSA-AES128-SHA"),
    ("rsa", "-tls1_2 -cipher DHE-RSA-AES128-SHA -dhparam dh4096.pem", "DHE-RSA-AES128-SHA"),
    ("p256", "-tls1_3 -groups ffdhe3072", "TLSv1.3"),
    ("p256", "-tls1_3 -groups ffdhe4096", "TLSv1.3"),
    // Long keys.
    ("big", "", "TLSv1.3"),
    ("big", "-tls1_2", "ECDHE-RSA"),
    // Chains.
    ("behind", "-cert_chain near.pem", "TLSv1.3"),
    ("behind", "-cert_chain far.pem", "TLSv1.3"),
    // Servers that are refused by OpenSSL as well.
    ("cn-other", "", "not valid for a.localhost, only for b.localhost"),
    ("cn-and-san", "", "not valid for a.localhost, only for b.localhost"),
    ("v1-other", "", "not valid for a.localhost, only for b.localhost"),
    ("p521-other", "-groups P-521", "not valid for a.localhost, only for b.localhost"),
];

/// Whether the page of the server says that this version of TLS, or a suite that begins like this, was agreed on.
fn has_spoken(page: &str, expected: &str) -> bool {
    page.contains(&format!("Protocol  : {expected}\n")) || page.contains(&format!("Cipher is {expected}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_servers_are_reached_or_the_refusal_names_the_reason() {
    let certificates = Certificates::make();
    // Both sides of all of them compute on one machine.
    let patient = "\nlimits: { connect_timeout: 30s }";
    let proxy = Proxy::start(&(certificates.trusted("a.localhost: { robots: ignore }") + patient)).await;
    let (proxy, certificates) = (&proxy, &certificates);
    let rows = CASES.iter().map(|(kind, terms, expected)| async move {
        let server = Server::start(certificates.0.path(), kind, terms).await;
        let mut wrong = Vec::new();
        for _ in 0..2 {
            let got = proxy.curl(&[&format!("https://a.localhost:{}/", server.port)]).await;
            let is_expected = match expected.contains(' ') {
                true => got.status() == 502 && got.text().contains(expected),
                false => got.status() == 200 && has_spoken(&got.text(), expected),
            };
            if !is_expected {
                wrong.push(format!("{kind} {terms}: {} {}", got.status(), got.text()));
            }
        }
        wrong
    });
    let wrong: Vec<_> = stream::iter(rows).buffer_unordered(8).concat().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const LEGACY: &str = "`tls: legacy` for this host in `hosts`";
const OFF: &str = "`verify: off` for this host in `hosts`";
const SHOWN: &str = "`client_certificate` for this host in `hosts`";
const AUTHORITY: &str = "`egress.ca_file`";
const TUNNEL: &str = "`intercept: tunnel` for this host in `hosts`";
const NONE: &str = "no setting";

/// Kind of the server's certificate, options of the server, the expected error, and the setting that helps.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    // Versions.
    ("rsa", "-tls1_1 -cipher ALL:@SECLEVEL=0", "neither TLS 1.2 nor TLS 1.3", LEGACY),
    ("rsa", "-tls1 -cipher ALL:@SECLEVEL=0", "neither TLS 1.2 nor TLS 1.3", LEGACY),
    // Keys and signatures.
    (
        "rsa",
        "-tls1_2 -cipher DHE-RSA-AES128-SHA:@SECLEVEL=0 -dhparam dh1024.pem",
        "Diffie-Hellman key is shorter",
        LEGACY,
    ),
    ("rsa", "-tls1_2 -cipher DHE-RSA-AES128-SHA -dhparam dh4104.pem", "Diffie-Hellman key is longer", NONE),
    ("rsa", "-tls1_2 -cipher DHE-RSA-AES128-SHA -dhparam dh8192.pem", "Diffie-Hellman key is longer", NONE),
    ("p256", "-tls1_3 -groups ffdhe6144", "none of the TLS parameters offered", NONE),
    ("p256", "-tls1_3 -groups ffdhe8192", "none of the TLS parameters offered", NONE),
    ("rsa", "-tls1_2 -cipher ALL:@SECLEVEL=0 -sigalgs RSA+SHA1", "none of the TLS parameters offered", LEGACY),
    ("weak", "-tls1_2 -cipher AES128-SHA:@SECLEVEL=0", "a key in the server's certificate chain is too short", LEGACY),
    ("weak", "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0", "is too short", LEGACY),
    ("weak", "-tls1_3 -cipher ALL:@SECLEVEL=0", "a key in the server's certificate chain is too short", LEGACY),
    ("bysha1", "-cipher ALL:@SECLEVEL=0", "is signed with a broken hash", LEGACY),
    ("bymd5", "-tls1_2 -cipher ALL:@SECLEVEL=0", "is signed with a broken hash", OFF),
    ("tiny", "-tls1_2 -cipher ALL:@SECLEVEL=0", "a key in the server's certificate chain is too short", OFF),
    ("self1024", "-tls1_2 -cipher ALL:@SECLEVEL=0", "a key in the server's certificate chain is too short", OFF),
    ("self2048", "", "self-signed", OFF),
    // Certificates of the server, and of ours.
    ("v1-untrusted", "", "issuer is not trusted", AUTHORITY),
    ("p521-untrusted", "", "issuer is not trusted", AUTHORITY),
    ("rsa", "-Verify 1 -verify_return_error -CAfile ca.pem", "requires a client certificate", SHOWN),
    ("rsa", "-tls1_2 -Verify 1 -verify_return_error -CAfile ca.pem", "requires a client certificate", SHOWN),
    ("p521", "-Verify 1 -verify_return_error -CAfile ca.pem", "requires a client certificate", SHOWN),
    (
        "rsa",
        "-tls1_2 -cipher AES128-SHA -Verify 1 -verify_return_error -CAfile ca.pem",
        "requires a client certificate",
        SHOWN,
    ),
    ("behind", "-cert_chain long.pem", "chain is longer than 16 KiB", TUNNEL),
    // Errors that no setting helps against.
    ("dsa", "-tls1_2 -cipher ALL:@SECLEVEL=0", "none of the TLS parameters offered", NONE),
    ("rsa", "-tls1_2 -cipher AECDH-AES128-SHA:@SECLEVEL=0", "none of the TLS parameters offered", NONE),
    ("rsa", "-tls1_2 -cipher NULL-SHA256:@SECLEVEL=0", "none of the TLS parameters offered", NONE),
    ("p256", "-tls1_2 -groups secp256k1", "none of the TLS parameters offered", NONE),
    ("p256", "-servername b -servername_fatal -cert2 p256.pem -key2 p256.key", "no site of this name", NONE),
    ("p256", "-alpn spdy/1", "any offered version of HTTP", NONE),
];

/// Answers of a server to each ClientHello before it closes, and the expected error.
const ODD: &[(&[u8], &str)] = &[
    // Alerts: handshake_failure (what servers say that have RC4 or 3DES alone), insufficient_security, protocol_version, internal_error.
    (&[21, 3, 3, 0, 2, 2, 40], "none of the TLS parameters offered"),
    (&[21, 3, 3, 0, 2, 2, 71], "none of the TLS parameters offered"),
    (&[21, 3, 3, 0, 2, 2, 70], "neither TLS 1.2 nor TLS 1.3"),
    (&[21, 3, 3, 0, 2, 2, 80], "ended the TLS handshake (internal error)"),
    (&[21, 3, 3, 0, 2, 2, 112], "no site of this name"),
    // A ServerHello of SSL 3.0, and such of TLS 1.2 with RC4, 3DES and RC4 for export.
    (&hello(0, 5), "neither TLS 1.2 nor TLS 1.3"),
    (&hello(3, 5), "cipher suite that was not offered, such as RC4 or 3DES"),
    (&hello(3, 10), "cipher suite that was not offered, such as RC4 or 3DES"),
    (&hello(3, 3), "cipher suite that was not offered, such as RC4 or 3DES"),
    (&[], "closed the connection during the TLS handshake"),
];

/// A ServerHello of this minor version, which has chosen this suite.
const fn hello(minor: u8, suite: u8) -> [u8; 47] {
    let mut hello = [7; 47];
    let head = [22, 3, minor, 0, 42, 2, 0, 0, 38, 3, minor];
    let mut at = 0;
    while at < head.len() {
        hello[at] = head[at];
        at += 1;
    }
    (hello[43], hello[44], hello[45], hello[46]) = (0, 0, suite, 0);
    hello
}

/// Each setting with a proxy that has it for the host; none for the first.
async fn with_each_setting(certificates: &Certificates) -> Vec<(&'static str, Proxy)> {
    let [shown, key] = ["rsa.pem", "rsa.key"].map(|name| certificates.file(name));
    let show = format!("client_certificate: {{ certificate: '{shown}', key: '{key}' }}");
    let mut proxies = Vec::new();
    for (named, setting) in [
        ("", "verify: on"),
        (LEGACY, "tls: legacy"),
        (OFF, "verify: off"),
        (SHOWN, &show),
        (AUTHORITY, "verify: on"),
        (TUNNEL, "intercept: tunnel"),
        ("both", "verify: off, tls: legacy"),
    ] {
        let all = certificates.trusted(&format!("a.localhost: {{ robots: ignore, {setting} }}"));
        let all = if named == AUTHORITY { all.replace("roots.pem", "all.pem") } else { all };
        proxies.push((named, Proxy::start(&all).await));
    }
    proxies
}

/// Wrong answers of the proxies, if the error should suggest `helps`.
async fn faults(proxies: &[(&str, Proxy)], port: u16, said: &str, helps: &str, roots: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (setting, proxy) in proxies {
        let url = format!("https://a.localhost:{port}/");
        // The client that does TLS itself has the same roots.
        let got = match *setting == TUNNEL {
            true if helps != TUNNEL => continue,
            true => proxy.curl(&["--cacert", roots, &url]).await,
            false => proxy.curl(&[&url]).await,
        };
        let (status, text) = (got.heads.last().map(|head| head.status()), got.text());
        let is_right = match *setting {
            // If an old TLS version may be the cause, the sentence with `tls: legacy` is longer.
            "" => status == Some(502) && text.contains(said) && (text.contains(helps) || helps == NONE),
            setting if setting == helps => status == Some(200),
            LEGACY if helps == NONE => status == Some(502) && text.contains(NONE) && !text.contains(LEGACY),
            _ if helps == NONE => status == Some(502),
            _ => true,
        };
        if !is_right {
            faults.push(format!("{said} [{setting}]: {status:?} {text}"));
        }
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setting_suggested_by_a_tls_refusal_works() {
    let certificates = Certificates::make();
    let proxies = with_each_setting(&certificates).await;
    let (proxies, certificates) = (&proxies, &certificates);
    let roots = &certificates.file("roots.pem");
    let rows = REFUSED.iter().map(|(kind, terms, said, helps)| async move {
        let server = Server::start(certificates.0.path(), kind, terms).await;
        let faults = faults(proxies, server.port, said, helps, roots).await;
        faults.into_iter().map(|fault| format!("{kind} {terms}: {fault}")).collect()
    });
    let mut wrong: Vec<String> = stream::iter(rows).buffer_unordered(8).concat().await;
    for (says, said) in ODD {
        let server = RawOrigin::start(move |stream, _| refuse(stream, says)).await;
        let port = server.authority("").trim_start_matches(':').parse().unwrap();
        wrong.extend(faults(proxies, port, said, NONE, roots).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let plain = RawOrigin::start(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    })
    .await;
    let refused = proxies[0].1.curl(&[&plain.url("/").replace("http", "https")]).await.text();
    assert!(
        refused.contains("does not speak TLS on this port; if it speaks HTTP there, ask for `http://`"),
        "{refused}"
    );
    assert_eq!(proxies[0].1.curl(&[&plain.url("/")]).await.status(), 400);
}

/// Reads a ClientHello, so that closing does not reset the connection, and answers it.
async fn refuse(mut stream: TcpStream, says: &[u8]) {
    let mut head = [0; 5];
    if stream.read_exact(&mut head).await.is_ok() {
        let mut rest = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        let _ = stream.read_exact(&mut rest).await;
        let _ = stream.write_all(says).await;
    }
}

/// Anybody on the path can send the refusal: the following handshake is verified as before, and uses no older version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_tls_refusal_does_not_weaken_verification_or_version() {
    let certificates = Certificates::make();
    for (kind, terms, status, said) in [
        ("p256", "", 200, "TLSv1.3"),
        ("v1-untrusted", "", 502, "issuer is not trusted"),
        ("p521-other", "", 502, "not valid for a.localhost"),
        ("weak", "-tls1_2 -cipher ALL:@SECLEVEL=0", 502, "is too short"),
        ("rsa", "-tls1_1 -cipher ALL:@SECLEVEL=0", 502, "neither TLS 1.2 nor TLS 1.3"),
    ] {
        let proxy = Proxy::start(&certificates.trusted("a.localhost: { robots: ignore }")).await;
        let server = Server::start(certificates.0.path(), kind, terms).await;
        let port = server.port;
        let between = RawOrigin::start(move |mut stream, number| async move {
            if number == 0 {
                return refuse(stream, &[21, 3, 3, 0, 2, 2, 40]).await;
            }
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut server).await;
        })
        .await;
        let got = proxy.curl(&[&between.url("/").replace("http", "https")]).await;
        assert_eq!(got.status(), status, "{kind} {terms}: {}", got.text());
        assert!(got.text().contains(said), "{kind} {terms}: {}", got.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_tls_applies_only_to_its_hosts() {
    let certificates = Certificates::make();
    let proxy = Proxy::start(
        &certificates.trusted("a.localhost: { robots: ignore, tls: legacy }, odd-.localhost: { robots: ignore }"),
    )
    .await;
    for (kind, terms, version) in [
        ("rsa", "-tls1 -cipher ALL:@SECLEVEL=0", "TLSv1"),
        ("rsa", "-tls1_1 -cipher ALL:@SECLEVEL=0", "TLSv1.1"),
        ("weak", "-tls1_2 -cipher AES128-SHA:@SECLEVEL=0", "TLSv1.2"),
        ("p256", "", "TLSv1.3"),
        ("sha1", "-tls1 -cipher ALL:@SECLEVEL=0", "TLSv1"),
        ("bysha1", "-tls1_2 -cipher ALL:@SECLEVEL=0", "TLSv1.2"),
    ] {
        let server = Server::start(certificates.0.path(), kind, terms).await;
        let got = proxy.curl(&[&format!("https://a.localhost:{}/", server.port)]).await;
        assert_eq!(got.status(), 200, "{kind} {terms}: {}", got.text());
        assert!(has_spoken(&got.text(), version), "{}", got.text());
    }
    // The name and the chain are verified all the same.
    for (kind, why) in [
        ("p521-other", "not valid for a.localhost"),
        ("v1-untrusted", "issuer is not trusted"),
        ("bymd5", "signed with a broken hash"),
        ("tiny", "is too short"),
    ] {
        let server = Server::start(certificates.0.path(), kind, "-tls1_2 -cipher ALL:@SECLEVEL=0").await;
        let got = proxy.curl(&[&format!("https://a.localhost:{}/", server.port)]).await;
        assert_eq!(got.status(), 502);
        assert!(got.text().contains(why), "{}", got.text());
    }
}

fn answer(seen: &Seen) -> Reply {
    match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /no\n"),
        "/ws" => Reply::websocket(),
        path => Reply::text(format!("page {path}")),
    }
}

/// The origin behind TLS 1.2 with suites of CBC. How many connections have come, and how many have shaken hands.
async fn front(origin: &Origin, certificates: &Certificates, kind: &str, asks: bool) -> (u16, Arc<[AtomicUsize; 2]>) {
    front_named(origin, certificates, kind, asks, None).await
}

/// The same. `name`: it shakes hands with nobody who asks for another (SNI).
async fn front_named(
    origin: &Origin,
    certificates: &Certificates,
    kind: &str,
    asks: bool,
    name: Option<&'static str>,
) -> (u16, Arc<[AtomicUsize; 2]>) {
    let mut acceptor = SslAcceptor::mozilla_intermediate(SslMethod::tls_server()).unwrap();
    acceptor.set_max_proto_version(Some(SslVersion::TLS1_2)).unwrap();
    acceptor.set_cipher_list("ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA").unwrap();
    acceptor.set_certificate_chain_file(certificates.file(&format!("{kind}.pem"))).unwrap();
    acceptor.set_private_key_file(certificates.file(&format!("{kind}.key")), SslFiletype::PEM).unwrap();
    if asks {
        acceptor.set_ca_file(certificates.file("roots.pem")).unwrap();
        acceptor.set_verify(openssl::ssl::SslVerifyMode::PEER | openssl::ssl::SslVerifyMode::FAIL_IF_NO_PEER_CERT);
    }
    acceptor.set_servername_callback(move |ssl, alert| match name {
        Some(name) if ssl.servername(NameType::HOST_NAME) != Some(name) => {
            *alert = SslAlert::UNRECOGNIZED_NAME;
            Err(SniError::ALERT_FATAL)
        }
        _ => Ok(()),
    });
    let acceptor = acceptor.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (origin, counts) = (origin.address(), Arc::<[AtomicUsize; 2]>::default());
    let counted = counts.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            counted[0].fetch_add(1, Ordering::Relaxed);
            let mut tls = tokio_openssl::SslStream::new(Ssl::new(acceptor.context()).unwrap(), tcp).unwrap();
            let counted = counted.clone();
            tokio::spawn(async move {
                if std::pin::Pin::new(&mut tls).accept().await.is_ok() {
                    counted[1].fetch_add(1, Ordering::Relaxed);
                    let mut plain = TcpStream::connect(origin).await.unwrap();
                    let _ = copy_bidirectional(&mut tls, &mut plain).await;
                }
            });
        }
    });
    (port, counts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_fallback_serves_robots_txt_pages_and_websockets_and_is_remembered() {
    let certificates = Certificates::make();
    let origin = Origin::http(answer).await;
    let (port, counts) = front(&origin, &certificates, "p256", false).await;
    let proxy = Proxy::start(&certificates.trusted("")).await;
    let host = format!("a.localhost:{port}");
    let client = async || {
        let client = crate::support::Client::connect(proxy.address(), &host).await;
        client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await
    };
    for _ in 0..3 {
        let mut client = client().await;
        assert_eq!(client.get("/x", &host).await.text(), "page /x");
        assert_refused(&client.get("/no", &host).await, 403, "http_request_denied", "robots-disallowed");
    }
    let (mut socket, _) = WebSocket::open(client().await, "/ws", &host).await.expect("101");
    assert_eq!(socket.echo(b"hello").await, b"hello");
    let [came, shaken] = [0, 1].map(|at| counts[at].load(Ordering::Relaxed));
    assert_eq!((came, shaken), (3, 2), "one without success; one for robots.txt and pages, one for the WebSocket");
    assert!(origin.log.all().iter().all(|seen| seen.protocol == Protocol::Http1));
    // Large bodies, in both directions.
    let page = "y".repeat(3 << 20);
    let mut client = client().await;
    client.send(format!("POST /x HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{page}", page.len())).await;
    assert_eq!(client.response().await.text(), "page /x");
    assert_eq!(origin.log.of("/x").last().unwrap().body.length(), page.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_settings_of_a_host_apply_to_the_openssl_fallback() {
    let certificates = Certificates::make();
    let origin = Origin::http(answer).await;
    let (port, _) = front(&origin, &certificates, "p256", true).await;
    let script = "openssl x509 -in p256.pem -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64";
    let pin = Blocking::new("bash").args(["-c", script]).current_dir(certificates.0.path()).output().unwrap();
    let pin = String::from_utf8(pin.stdout).unwrap();
    let shown = format!(
        "client_certificate: {{ certificate: '{}', key: '{}' }}",
        certificates.file("rsa.pem"),
        certificates.file("rsa.key")
    );
    let wrong = "sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for (terms, expected, said) in [
        (format!("{shown}, pin: 'sha256/{}'", pin.trim()), 200, "page /x"),
        (format!("{shown}, pin: '{wrong}'"), 502, "pinned"),
        (format!("{shown}, verify: off"), 200, "page /x"),
        ("robots: ignore".into(), 502, "client certificate"),
    ] {
        let proxy = Proxy::start(&certificates.trusted(
            &format!("a.localhost: {{ robots: ignore, {terms} }}").replace("robots: ignore, robots", "robots"),
        ))
        .await;
        let got = proxy.curl(&[&format!("https://a.localhost:{port}/x")]).await;
        assert_eq!(got.status(), expected, "{terms}: {}", got.text());
        assert!(got.text().contains(said), "{terms}: {}", got.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_fallback_through_an_upstream_proxy_opens_a_second_tunnel_once() {
    let certificates = Certificates::make();
    let origin = Origin::http(answer).await;
    let (port, counts) = front(&origin, &certificates, "p256", false).await;
    let parent = Parent::start(Conduct::Serve).await;
    let through = format!("egress: {{ upstream_proxy: '{}', ca_file:", parent.url(""));
    let proxy = Proxy::start(&certificates.trusted("").replace("egress: { ca_file:", &through)).await;
    let host = format!("a.localhost:{port}");
    for _ in 0..2 {
        assert_eq!(proxy.curl(&[&format!("https://{host}/x")]).await.text(), "page /x");
        assert_eq!(proxy.curl(&[&format!("https://{host}/no")]).await.status(), 403);
    }
    assert_eq!(parent.lines(), vec![format!("CONNECT {host} HTTP/1.1"); 2]);
    assert_eq!([0, 1].map(|at| counts[at].load(Ordering::Relaxed)), [2, 1]);
}

/// rustls does not support P-521 keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_fallback_supports_http2() {
    let certificates = Certificates::make();
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    acceptor.set_certificate_chain_file(certificates.file("p521.pem")).unwrap();
    acceptor.set_private_key_file(certificates.file("p521.key"), SslFiletype::PEM).unwrap();
    acceptor.set_alpn_select_callback(|_, offered| select_next_proto(b"\x02h2", offered).ok_or(AlpnError::NOACK));
    let acceptor = acceptor.build();
    let site = RawOrigin::start(move |stream, _| {
        let ssl = Ssl::new(acceptor.context()).unwrap();
        async move {
            let mut tls = tokio_openssl::SslStream::new(ssl, stream).unwrap();
            if std::pin::Pin::new(&mut tls).accept().await.is_err() {
                return;
            }
            let mut connection = h2::server::handshake(tls).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                body.send_data(format!("{} of {:?}", request.uri().path(), request.version()).into(), true).unwrap();
            }
        }
    })
    .await;
    let proxy = Proxy::start(&certificates.trusted("a.localhost: { robots: ignore }")).await;
    for _ in 0..2 {
        assert_eq!(proxy.curl(&[&site.url("/x").replace("http", "https")]).await.text(), "/x of HTTP/2.0");
    }
}

/// The servers abort a handshake with another SNI than the expected one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_fallback_sends_and_verifies_names_with_underscores() {
    const NAME: &str = "a_b.c.localhost";
    let certificates = Certificates::make();
    let origin = Origin::http(answer).await;
    let (socket, _) = front_named(&origin, &certificates, "underscore", false, Some(NAME)).await;
    for tls in ["current", "legacy"] {
        let proxy = Proxy::start(&certificates.trusted(&format!("{NAME}: {{ robots: ignore, tls: {tls} }}"))).await;
        for (kind, status) in [("underscore", 200), ("hyphen", 502)] {
            let terms = format!(
                "-tls1_2 -cipher ECDHE-ECDSA-AES128-SHA -servername {NAME} -servername_fatal -cert2 {kind}.pem -key2 {kind}.key"
            );
            let server = Server::start(certificates.0.path(), "p521-other", &terms).await;
            let got = proxy.curl(&[&format!("https://{NAME}:{}/", server.port)]).await;
            assert_eq!(got.status(), status, "{tls} {kind}: {}", got.text());
            let said =
                if status == 200 { "ECDHE-ECDSA-AES128-SHA" } else { "not valid for a_b.c.localhost, only for a-b" };
            assert!(got.text().contains(said), "{tls}: {}", got.text());
        }
        let host = format!("{NAME}:{socket}");
        let client = crate::support::Client::connect(proxy.address(), &host).await;
        let client = client.tls(NAME, &proxy.ca_pem_path(), &[b"http/1.1"]).await;
        let (mut socket, _) = WebSocket::open(client, "/ws", &host).await.expect("101");
        assert_eq!(socket.echo(b"hello").await, b"hello");
    }
}

/// If rustls can speak to the origin, other faults do not cause a second handshake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_certificate_is_not_fetched_again_by_the_openssl_fallback() {
    let other = crate::support::TestCa::new("an authority that nobody trusts");
    for origin in [
        Origin::https_as(&other, &["a.localhost"], Alpn::Both, answer).await,
        Origin::https_as(test_ca(), &["b.localhost"], Alpn::Both, answer).await,
        Origin::https_expired(answer).await,
    ] {
        let proxy = Proxy::start("hosts: { a.localhost: { robots: ignore } }").await;
        assert_eq!(proxy.curl(&[&origin.url("/x")]).await.status(), 502);
        assert_eq!(origin.connections(), 1);
    }
}

/// rustls rejects names whose label ends with a hyphen; browsers and curl accept them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_that_rustls_rejects_uses_the_openssl_fallback() {
    let certificates = Certificates::make();
    let origin = Origin::http(answer).await;
    let (port, _) = front(&origin, &certificates, "p256", false).await;
    let proxy = Proxy::start(&certificates.trusted("")).await;
    let got = proxy.get(&format!("https://odd-.localhost:{port}/x")).await;
    assert_eq!((got.status(), got.text().as_str()), (200, "page /x"));
}
