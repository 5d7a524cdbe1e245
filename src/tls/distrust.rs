//! Clients that do not trust our certificate: how to detect them, and what to advise for which client.

use rustls::AlertDescription as Alert;
use std::io;
use std::net::SocketAddr;

/// How a client rejected a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distrust {
    UnknownCa,
    CertificateUnknown,
    BadCertificate,
    CertificateExpired,
    /// The client closed the connection as soon as it had the certificate, without an alert, as GnuTLS and Node.js do.
    Closed,
}

impl Distrust {
    /// Whether an error of the handshake, or of the connection right after it, means that the client rejected the certificate.
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::AlertReceived(alert)) => Self::of_alert(*alert),
            Some(_) => None,
            None => {
                use io::ErrorKind as Kind;
                let is_end = matches!(error.kind(), Kind::UnexpectedEof | Kind::ConnectionReset | Kind::BrokenPipe);
                is_end.then_some(Self::Closed)
            }
        }
    }

    fn of_alert(alert: Alert) -> Option<Self> {
        match alert {
            Alert::UnknownCA => Some(Self::UnknownCa),
            Alert::CertificateUnknown => Some(Self::CertificateUnknown),
            Alert::BadCertificate | Alert::UnsupportedCertificate | Alert::CertificateRevoked => {
                Some(Self::BadCertificate)
            }
            Alert::CertificateExpired => Some(Self::CertificateExpired),
            // Other alerts do not concern the certificate.
            _ => None,
        }
    }

    /// The label in metrics. Stable.
    pub fn slug(self) -> &'static str {
        self.words().0
    }

    /// A phrase for messages that says how the client rejected the certificate.
    pub fn what(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::UnknownCa => ("unknown-ca", "it does not trust the authority (unknown_ca)"),
            Self::CertificateUnknown => {
                ("certificate-unknown", "it does not accept the certificate (certificate_unknown)")
            }
            Self::BadCertificate => ("bad-certificate", "it says the certificate is bad (bad_certificate)"),
            Self::CertificateExpired => {
                ("certificate-expired", "it says the certificate has expired (certificate_expired)")
            }
            Self::Closed => ("closed", "it closed the connection when it saw the certificate"),
        }
    }

    /// Advice that makes a client of this User-Agent accept the certificate of this host, or of a listener at this address.
    pub fn cure(self, host: &str, agent: Option<&str>) -> &'static str {
        match self {
            _ if host.parse::<SocketAddr>().is_ok() => {
                "the certificate is the listener's (`listen[].tls`): renew it if it has expired, or name its authority in the client's \
                 option for proxies, such as curl's `--proxy-cacert`"
            }
            Self::CertificateExpired => "set the client's clock, or this machine's",
            Self::UnknownCa | Self::CertificateUnknown | Self::BadCertificate | Self::Closed => {
                agent.and_then(known).unwrap_or(
                    "make the client trust the authority: `politely ca install` for this machine's programs, `eval \
                     \"$(politely ca env)\"` for those of one shell, or its own option with the file that `politely ca path` names",
                )
            }
        }
    }
}

/// Advice for the first client that the User-Agent names.
fn known(agent: &str) -> Option<&'static str> {
    let agent = agent.to_ascii_lowercase();
    CURES.iter().find(|(names, _)| names.iter().any(|name| agent.contains(name))).map(|(_, cure)| *cure)
}

/// Parts of User-Agents, in lower case. A part that occurs in other clients' User-Agents comes after those clients.
const CURES: &[(&[&str], &str)] = &[
    (&["yt-dlp"], "yt-dlp brings its own roots: `--compat-options no-certifi` makes it read SSL_CERT_FILE"),
    (
        &["linkchecker"],
        "linkchecker brings its own roots: `sslverify` in its configuration takes a bundle such as SSL_CERT_FILE",
    ),
    (&["ureq"], "ureq brings its own roots: RootCerts::PlatformVerifier makes it read SSL_CERT_FILE"),
    (&["wreq"], "rnet brings its own roots: `Client(verify=os.environ[\"SSL_CERT_FILE\"])`"),
    (
        &["cadaver"],
        "cadaver trusts this machine's authorities: `politely ca install --only system`; at a terminal, it asks whether to accept others",
    ),
    (&["git/"], "git reads GIT_SSL_CAINFO, or `http.sslCAInfo`: the file that `politely ca path` names"),
    (&["pip/"], "pip reads PIP_CERT, or `--cert`: a bundle such as `politely ca env` makes"),
    (&["aria2"], "aria2 takes `--ca-certificate` with a bundle such as `politely ca env` makes"),
    (&["wget"], "wget takes `--ca-certificate` with the file that `politely ca path` names"),
    (&["r-curl", "httr"], "libcurl reads no variable: R's curl takes `cainfo = Sys.getenv(\"CURL_CA_BUNDLE\")`"),
    (&["pycurl"], "libcurl reads no variable: CAINFO (`ca_certs` of Tornado) takes the file that CURL_CA_BUNDLE names"),
    (&["curl", "guzzle"], "curl reads CURL_CA_BUNDLE, or `--cacert`, and PHP's `curl.cainfo`"),
    (
        &["python-requests"],
        "requests reads REQUESTS_CA_BUNDLE, unless `verify` names another bundle or trust_env is off",
    ),
    (
        &["python", "aiohttp", "httpx", "scrapy", "urllib"],
        "Python reads SSL_CERT_FILE; a client that brings certifi's roots takes the bundle by its own option, such as \
         `verify=os.environ[\"SSL_CERT_FILE\"]`",
    ),
    (
        &["node", "axios", "got", "undici", "npm"],
        "Node.js reads NODE_EXTRA_CA_CERTS at its start, and ignores it where the program sets `ca`",
    ),
    (&["deno"], "Deno reads DENO_CERT, or `--cert`"),
    (
        &["java", "jakarta", "okhttp", "jsoup"],
        "Java takes `-Djavax.net.ssl.trustStore` with a key store, as JAVA_TOOL_OPTIONS of `politely ca env` says; or \
         `politely ca install --only java`",
    ),
    (&["go-http-client", "golang"], "Go reads SSL_CERT_FILE"),
    (&["libwww-perl", "lwp", "mechanize"], "Perl's LWP reads PERL_LWP_SSL_CA_FILE, Ruby reads SSL_CERT_FILE"),
    (
        &["ruby", "faraday"],
        "Ruby reads SSL_CERT_FILE, unless the program sets `ca_file`; Typhoeus takes `cainfo: ENV[\"CURL_CA_BUNDLE\"]`",
    ),
    (&["php"], "PHP takes `openssl.cafile`, as PHP_INI_SCAN_DIR of `politely ca env` says"),
    (&["cargo"], "Cargo reads CARGO_HTTP_CAINFO"),
    (&["mercurial"], "Mercurial takes `--config web.cacerts=$SSL_CERT_FILE`"),
    (&["emacs"], "Emacs takes `(push (getenv \"SSL_CERT_FILE\") gnutls-trustfiles)`"),
    (&["souphttpsrc"], "GStreamer takes `souphttpsrc ssl-ca-file=$SSL_CERT_FILE`"),
    (
        &["firefox"],
        "Firefox trusts the certificates in its profile. For a new profile: `certutil -A -t C,, -n politely -i \"$(politely ca path)\" -d \
         sql:PROFILE` before it starts; `accept_insecure_certs` of Selenium; or, as root, `politely ca install --only browsers`",
    ),
    (
        &["chrom", "safari", "edg/", "mozilla"],
        "browsers trust the certificates in their own databases: `politely ca install --only browsers`",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_depends_on_the_user_agent() {
        let cure = |agent| Distrust::UnknownCa.cure("a.example", agent);
        for (agent, part) in [
            ("curl/7.88.1", "--cacert"),
            ("Wget/1.21.3", "--ca-certificate"),
            ("git/2.47.3", "GIT_SSL_CAINFO"),
            ("python-requests/2.31 ", "REQUESTS_CA_BUNDLE"),
            ("Python-urllib/3.11", "SSL_CERT_FILE"),
            ("Java-http-client/17.0.15", "trustStore"),
            ("Mozilla/5.0 (X11; Linux x86_64) Chrome/146.0.0.0 Safari/537.36", "--only browsers"),
            ("Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0", "sql:PROFILE"),
            ("yt-dlp", "no-certifi"),
            ("LinkChecker/10.2", "sslverify"),
            ("ureq/3.5.1", "PlatformVerifier"),
            ("wreq/5.3.0", "verify="),
            ("cadaver/0.24 neon/0.32.5", "--only system"),
            ("ruby", "cainfo"),
            ("Mozilla/5.0 (compatible; pycurl)", "CAINFO"),
            ("libcurl/7.88.1 r-curl/5.0.0 httr2/0.2.2", "cainfo"),
            ("mercurial/proto-1.0 (Mercurial 6.3.2)", "web.cacerts"),
            ("URL/Emacs Emacs/28.2 (X11; x86_64-pc-linux-gnu)", "gnutls-trustfiles"),
            ("ExampleBot", "politely ca install"),
        ] {
            assert!(cure(Some(agent)).contains(part), "{agent}: {}", cure(Some(agent)));
        }
        assert!(cure(None).contains("politely ca path"));
        assert!(Distrust::CertificateExpired.cure("a.example", Some("curl/8")).contains("clock"));
        assert!(Distrust::UnknownCa.cure("127.0.0.1:3128", None).contains("--proxy-cacert"));
    }

    #[test]
    fn unrelated_alerts_and_errors_are_not_distrust() {
        let alert =
            |alert| Distrust::of(&io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert)));
        assert_eq!(alert(Alert::UnknownCA), Some(Distrust::UnknownCa));
        assert_eq!(alert(Alert::ProtocolVersion), None);
        assert_eq!(alert(Alert::CertificateRequired), None);
        assert_eq!(Distrust::of(&io::ErrorKind::UnexpectedEof.into()), Some(Distrust::Closed));
        assert_eq!(Distrust::of(&io::ErrorKind::TimedOut.into()), None);
    }
}
