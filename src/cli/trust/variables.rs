//! The environment variables, and the files they name, that make programs use the proxy and trust the authority: one list for `run` and `ca
//! env`. Existing values are kept and extended if a variable can hold several.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Permissions};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::firefox_policy;
use crate::config::{Network, Settings, UnusableFile, read_file, write_whole};
use crate::tls::{Roots, roots};

/// The inputs from which the variables and files are made.
pub(in crate::cli) struct TrustFiles<'a> {
    /// The directory for the files.
    pub directory: &'a Path,
    pub roots: &'a Roots,
    pub ca_pem: &'a str,
    /// Host and port of the proxy. `None`: no listener can be named, as each requires TLS, has port 0 or is inherited.
    pub proxy: Option<(String, u16)>,
    /// The part before the host in the proxy's URL: empty, or `NAME:PASSWORD@`.
    pub credentials: &'a str,
    /// Hosts to be reached without the proxy; usually [`direct`].
    pub direct: &'static str,
}

/// An entry of NO_PROXY that makes Chromium use the proxy even for this machine. Other clients ignore the entry.
const NOT_EVEN_LOOPBACK: &str = "<-loopback>";

/// Environment variables: name and value.
pub(in crate::cli) type Variables = Vec<(&'static str, OsString)>;

/// Hosts to be reached without the proxy: this machine, which the proxy refuses, and where drivers such as chromedriver control browsers.
/// None if `egress.allow` opens this machine.
pub(in crate::cli) fn direct(settings: &Settings) -> &'static str {
    let opens = |network: &Network| network.0.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST));
    if settings.egress.allow.iter().any(opens) { "" } else { "localhost,127.0.0.1,::1" }
}

impl TrustFiles<'_> {
    /// Writes the files, and returns the variables that name them. `set`: the present value of a variable.
    ///
    /// # Errors
    /// A file that most programs need cannot be written.
    pub fn variables(&self, set: impl Fn(&str) -> Option<OsString>) -> Result<Variables, UnusableFile> {
        let set = |name| set(name).filter(|value| !value.is_empty());
        let bundle = self.directory.join("bundle.pem");
        roots::write_bundle(&bundle, self.roots, self.ca_pem)?;
        let java = self.directory.join("java.jks");
        roots::write_java(&java, self.roots, self.ca_pem)?;
        let mut all: Variables = TRUST.iter().map(|name| (*name, OsString::from(&bundle))).collect();
        all.push(("JAVA_TOOL_OPTIONS", self.java_options(&java, set("JAVA_TOOL_OPTIONS"))));
        // Set only if it was set already: rclone fails with this variable, and boto3 prefers it but does not need it.
        all.extend(set(AWS).map(|_| (AWS, OsString::from(&bundle))));
        // Most programs need none of these variables, so a file that cannot be written is left out.
        all.extend(php(self.directory, &bundle, set("PHP_INI_SCAN_DIR")).map(|value| ("PHP_INI_SCAN_DIR", value)));
        all.extend(self.apt(&bundle, set("APT_CONFIG")).map(|value| ("APT_CONFIG", value)));
        all.extend(playwright(self.directory, self.ca_pem, set(PLAYWRIGHT)).map(|value| (PLAYWRIGHT, value)));
        all.extend(self.wget(&bundle, set("WGETRC")).map(|value| ("WGETRC", value)));
        if let Some(url) = self.proxy_url() {
            all.extend(PROXY.map(|name| (name, url.clone().into())));
            all.extend(self.curl(&url, set));
            let direct = if self.direct.is_empty() { NOT_EVEN_LOOPBACK } else { self.direct };
            all.extend(["NO_PROXY", "no_proxy"].map(|name| (name, direct.into())));
            all.extend(["NODE_USE_ENV_PROXY", "PERL_LWP_ENV_PROXY"].map(|name| (name, "1".into())));
            all.extend(node(self.directory, set("NODE_OPTIONS")).map(|value| ("NODE_OPTIONS", value)));
        }
        Ok(all)
    }

    fn proxy_url(&self) -> Option<String> {
        self.proxy.as_ref().map(|(host, port)| format!("http://{}{host}:{port}", self.credentials))
    }

    /// Java reads options instead of proxy variables, and reaches this machine without a proxy unless configured otherwise.
    fn java_options(&self, store: &Path, set: Option<OsString>) -> OsString {
        let store = store.display().to_string();
        // The JVM strips quotes.
        let quote = if store.contains('"') { "'" } else { "\"" };
        let mut ours = format!("-Djavax.net.ssl.trustStore={quote}{store}{quote}");
        if let Some((host, port)) = &self.proxy {
            let host = host.trim_matches(['[', ']']);
            for scheme in ["http", "https"] {
                ours += &format!(" -D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port}");
            }
            if self.direct.is_empty() {
                ours += " -Dhttp.nonProxyHosts=";
            }
        }
        append_once(set, " ", &ours)
    }

    /// Writes a wgetrc with the user's settings and our bundle, as no variable names the roots of a wget built with GnuTLS. wget prefers
    /// the proxy of a wgetrc to the proxy of a variable, and later settings to earlier ones.
    fn wget(&self, bundle: &Path, set: Option<OsString>) -> Option<OsString> {
        let theirs = set.map(PathBuf::from).or_else(|| std::env::home_dir().map(|home| home.join(".wgetrc")));
        let mut ours = [b"ca_certificate = ", bundle.as_os_str().as_bytes(), b"\n"].concat();
        if let Some(url) = self.proxy_url() {
            let direct = self.direct;
            let proxy =
                format!("use_proxy = on\nhttp_proxy = {url}\nhttps_proxy = {url}\nno_proxy =\nno_proxy = {direct}\n");
            ours.extend(proxy.into_bytes());
        }
        self.write_combined("wgetrc", theirs, &ours)
    }

    /// Writes a curlrc with the user's settings and our proxy: curl prefers the proxy of the first curlrc to that of a variable.
    fn curl(&self, url: &str, set: impl Fn(&'static str) -> Option<OsString>) -> Option<(&'static str, OsString)> {
        let home = || std::env::home_dir().map(OsString::from);
        let config = || set("XDG_CONFIG_HOME");
        let places = [
            (set(CURL), ".curlrc"),
            (config(), "curlrc"),
            (config(), ".curlrc"),
            (home(), ".curlrc"),
            (home(), ".config/curlrc"),
        ];
        let mut files = places.into_iter().filter_map(|(directory, name)| Some(PathBuf::from(directory?).join(name)));
        let theirs = files.find(|file| file.is_file())?;
        let ours = format!("proxy = \"{url}\"\nnoproxy = \"{}\"\n", self.direct);
        self.write_combined(".curlrc", Some(theirs), ours.as_bytes())?;
        Some((CURL, self.directory.into()))
    }

    /// Writes settings for apt: the user's, our proxy and our bundle. apt, too, prefers the proxy of its settings to that of a variable.
    fn apt(&self, bundle: &Path, set: Option<OsString>) -> Option<OsString> {
        let mut ours = format!("Acquire::https::CAInfo \"{}\";\n", bundle.display());
        if let Some(url) = self.proxy_url() {
            // `#clear` also removes the user's proxies for single hosts.
            let proxy = |key| format!("#clear {key};\n{key} \"{url}\";\n");
            ours.extend(["Acquire::http::Proxy", "Acquire::https::Proxy"].map(proxy));
        }
        self.write_combined("apt.conf", set.map(PathBuf::from), ours.as_bytes())
    }

    /// Writes a file with the user's settings and ours, as the variable can name only one. Our settings are in the file once, even after
    /// repeated calls.
    fn write_combined(&self, name: &str, theirs: Option<PathBuf>, ours: &[u8]) -> Option<OsString> {
        let file = self.directory.join(name);
        let mut theirs = theirs.and_then(|theirs| read_file(&theirs).ok()).unwrap_or_default();
        if let Some(end) = theirs.windows(BEGIN.len()).position(|at| at == BEGIN) {
            theirs.truncate(end);
        }
        let is_secret = !theirs.is_empty() || !self.credentials.is_empty();
        write_whole(&file, &[&theirs, BEGIN, ours].concat(), mode(is_secret)).ok()?;
        Some(file.into())
    }
}

/// Node.js reads no proxy variable before version 24, and later only for some agents, so a preloaded script sets the proxy.
fn node(directory: &Path, set: Option<OsString>) -> Option<OsString> {
    let script = directory.join("preload.cjs");
    write_whole(&script, include_bytes!("preload.cjs"), 0o644).ok()?;
    let script = script.to_str()?.replace('\\', r"\\").replace('"', "\\\"");
    Some(append_once(set, " ", &format!("--require \"{script}\"")))
}

/// PHP's directories of settings, with ours added. An empty element stands for the built-in directory.
fn php(directory: &Path, bundle: &Path, set: Option<OsString>) -> Option<OsString> {
    let own = directory.join("php");
    DirBuilder::new().recursive(true).mode(0o755).create(&own).ok()?;
    fs::set_permissions(&own, Permissions::from_mode(0o755)).ok()?;
    let bundle = bundle.display();
    let settings = format!("openssl.cafile=\"{bundle}\"\ncurl.cainfo=\"{bundle}\"\n");
    write_whole(&own.join("politely.ini"), settings.as_bytes(), 0o644).ok()?;
    Some(append_once(Some(set.unwrap_or_default()), ":", own.to_str()?))
}

/// The policies of Playwright's Firefox, which has its own build and a new profile at each start. The policy names one file for each
/// certificate.
fn playwright(directory: &Path, ca_pem: &str, set: Option<OsString>) -> Option<OsString> {
    let theirs = set.and_then(|theirs| read_file(Path::new(&theirs)).ok());
    let mut certificates = Vec::new();
    for (index, pem) in ca_pem.split_inclusive("-----END CERTIFICATE-----\n").enumerate() {
        certificates.push(directory.join(format!("firefox-{index}.pem")));
        write_whole(&certificates[index], pem.as_bytes(), 0o644).ok()?;
    }
    let file = directory.join("firefox.json");
    let all = firefox_policy::with_certificates(theirs.as_deref().unwrap_or_default(), &certificates).ok()?;
    write_whole(&file, &all, mode(theirs.is_some())).ok()?;
    Some(file.into())
}

/// Permissions of a file. The user's settings may contain a password; everybody may read other files, as `run`'s command may become another
/// user.
fn mode(is_secret: bool) -> u32 {
    if is_secret { 0o600 } else { 0o644 }
}

/// Appends `ours` to `set`, unless `set` already contains it.
fn append_once(set: Option<OsString>, separator: &str, ours: &str) -> OsString {
    match set {
        None => ours.into(),
        Some(set) if set.to_string_lossy().contains(ours) => set,
        Some(set) => [set.as_os_str(), OsStr::new(separator), OsStr::new(ours)].into_iter().collect(),
    }
}

/// Variables that name a proxy.
pub(in crate::cli) const PROXY: [&str; 6] =
    ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
const CURL: &str = "CURL_HOME";
/// Marks the beginning of our settings in a file that begins with the user's settings.
const BEGIN: &[u8] = b"\n# politely:\n";
const PLAYWRIGHT: &str = "PLAYWRIGHT_FIREFOX_POLICIES_JSON";
const AWS: &str = "AWS_CA_BUNDLE";
/// Variables that name a bundle of roots.
const TRUST: [&str; 12] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    // boto3 and the AWS CLI read it too.
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "DENO_CERT",
    "HTTPLIB2_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "PERL_LWP_SSL_CA_FILE",
    // If `cafile` is set in an npmrc, npm ignores NODE_EXTRA_CA_CERTS.
    "npm_config_cafile",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Ca;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn existing_variables_are_extended_once() {
        let home = tempfile::tempdir().unwrap();
        let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
        let roots = roots::bundle(None).unwrap();
        let proxy = Some(("proxy.example".to_owned(), 3128));
        let told = TrustFiles {
            directory: home.path(),
            roots: &roots,
            ca_pem: ca.cert_pem(),
            proxy,
            credentials: "",
            direct: "localhost,127.0.0.1",
        };
        let theirs = home.path().join("theirs.conf");
        fs::write(&theirs, "Acquire::Retries 3;").unwrap();
        let find = |all: &[(&str, OsString)], wanted: &str| {
            let found =
                all.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_str().unwrap().to_owned());
            found.unwrap_or_else(|| panic!("{wanted}")).replace(home.path().to_str().unwrap(), "HOME")
        };
        let java = "-Djavax.net.ssl.trustStore=\"HOME/java.jks\" -Dhttp.proxyHost=proxy.example -Dhttp.proxyPort=3128 \
                    -Dhttps.proxyHost=proxy.example -Dhttps.proxyPort=3128";
        let none = told.variables(|_| None).unwrap();
        assert_eq!(find(&none, "PERL_LWP_SSL_CA_FILE"), "HOME/bundle.pem");
        assert_eq!(find(&none, "https_proxy"), "http://proxy.example:3128");
        assert_eq!(find(&none, "JAVA_TOOL_OPTIONS"), java);
        assert_eq!(find(&none, "PHP_INI_SCAN_DIR"), ":HOME/php");
        assert_eq!(find(&none, "NODE_OPTIONS"), "--require \"HOME/preload.cjs\"");
        assert!(none.iter().all(|(name, _)| *name != "AWS_CA_BUNDLE"), "rclone fails if this variable is set");
        let policies = home.path().join("theirs.json");
        fs::write(&policies, r#"{"policies": {"DisableAppUpdate": true}}"#).unwrap();
        let before = |name: &str| match name {
            "PLAYWRIGHT_FIREFOX_POLICIES_JSON" => Some(policies.clone().into()),
            "JAVA_TOOL_OPTIONS" => Some("-Xmx1g".into()),
            "NODE_OPTIONS" => Some("--trace-warnings".into()),
            "PHP_INI_SCAN_DIR" => Some("/etc/php".into()),
            "APT_CONFIG" => Some(theirs.clone().into()),
            _ => Some("theirs".into()),
        };
        let some = told.variables(before).unwrap();
        assert_eq!(find(&some, "JAVA_TOOL_OPTIONS"), format!("-Xmx1g {java}"));
        assert_eq!(find(&some, "AWS_CA_BUNDLE"), "HOME/bundle.pem", "boto3 uses only this variable if it is set");
        assert_eq!(find(&some, "NODE_OPTIONS"), "--trace-warnings --require \"HOME/preload.cjs\"");
        assert_eq!(find(&some, "PHP_INI_SCAN_DIR"), "/etc/php:HOME/php");
        let apt = || fs::read_to_string(home.path().join("apt.conf")).unwrap();
        assert!(apt().starts_with("Acquire::Retries 3;\n"), "{}", apt());
        assert!(apt().contains("\nAcquire::https::CAInfo \""), "{}", apt());
        let firefox = || {
            let read: serde_json::Value =
                serde_json::from_slice(&fs::read(home.path().join("firefox.json")).unwrap()).unwrap();
            read["policies"].clone()
        };
        assert_eq!(find(&some, "PLAYWRIGHT_FIREFOX_POLICIES_JSON"), "HOME/firefox.json");
        assert_eq!(firefox()["DisableAppUpdate"], true);
        let certificate = home.path().join("firefox-0.pem");
        let installed = serde_json::json!([certificate.to_str().unwrap()]);
        assert_eq!(firefox()["Certificates"]["Install"], installed);
        assert_eq!(fs::read_to_string(certificate).unwrap(), ca.cert_pem());
        let again = |name: &str| some.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        let (twice, apt_before) = (told.variables(again).unwrap(), apt());
        assert_eq!((twice, apt()), (some.clone(), apt_before));
        assert_eq!(firefox()["Certificates"]["Install"], installed);
    }

    /// A program may be reading the files.
    #[test]
    fn files_are_replaced_atomically_and_only_if_changed() {
        let home = tempfile::tempdir().unwrap();
        let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
        let roots = roots::bundle(None).unwrap();
        let told = TrustFiles {
            directory: &home.path().join("files"),
            roots: &roots,
            ca_pem: ca.cert_pem(),
            proxy: Some(("proxy.example".to_owned(), 3128)),
            credentials: "",
            direct: "",
        };
        fs::create_dir(told.directory).unwrap();
        let files = || {
            let all = ["", "php"].map(|below| fs::read_dir(told.directory.join(below)).unwrap());
            let all = all.into_iter().flatten().map(|entry| entry.unwrap().path());
            all.filter(|path| path.is_file()).collect::<std::collections::BTreeSet<_>>()
        };
        let numbers = || files().iter().map(|path| path.metadata().unwrap().ino()).collect::<Vec<_>>();
        told.variables(|_| None).unwrap();
        let (made, before) = (files(), numbers());
        assert!(made.len() >= 8, "{made:?}");
        told.variables(|_| None).unwrap();
        assert_eq!(numbers(), before);
        made.iter().for_each(|path| fs::write(path, "before").unwrap());
        let open: Vec<_> = made.iter().map(|path| fs::File::open(path).unwrap()).collect();
        told.variables(|_| None).unwrap();
        for (file, path) in open.into_iter().zip(&made) {
            assert_eq!(std::io::read_to_string(file).unwrap(), "before", "{}", path.display());
            assert_ne!(fs::read(path).unwrap(), b"before", "{}", path.display());
        }
        assert_eq!(files(), made);
    }

    /// The programs use the last setting.
    #[test]
    fn wget_apt_and_curl_settings_are_rewritten_to_use_the_proxy() {
        let home = tempfile::tempdir().unwrap();
        let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
        let roots = roots::bundle(None).unwrap();
        let theirs = home.path().join("theirs");
        let before = |name: &str, text: &str| {
            fs::write(home.path().join(name), text).unwrap();
            Some(home.path().join(name).into_os_string())
        };
        let files = ["wgetrc", "apt.conf", ".curlrc"];
        let write = |port: Option<u16>, credentials: &str, set: &dyn Fn(&str) -> Option<OsString>| {
            let told = TrustFiles {
                directory: &theirs,
                roots: &roots,
                ca_pem: ca.cert_pem(),
                proxy: port.map(|port| ("127.0.0.1".to_owned(), port)),
                credentials,
                direct: "localhost",
            };
            fs::create_dir_all(&theirs).unwrap();
            let all = told.variables(set).unwrap();
            let mode = |file: &&str| theirs.join(file).metadata().unwrap().mode() & 0o777;
            (all, files.map(|file| fs::read_to_string(theirs.join(file)).unwrap()), files.each_ref().map(mode))
        };
        let users = |name: &str| match name {
            "WGETRC" => before("w", "use_proxy = off\nno_proxy = example.com"),
            "CURL_HOME" => before(".curlrc", "proxy = http://127.0.0.1:9\nnoproxy = *").map(|_| home.path().into()),
            "APT_CONFIG" => before("a", "Acquire::http::Proxy::example.com \"DIRECT\";"),
            _ => None,
        };
        let (variables, [wgetrc, apt, curlrc], modes) = write(Some(3128), "", &users);
        assert!(wgetrc.starts_with("use_proxy = off\nno_proxy = example.com\n"), "{wgetrc}");
        let last = "use_proxy = on\nhttp_proxy = http://127.0.0.1:3128\nhttps_proxy = http://127.0.0.1:3128\nno_proxy =\n\
                    no_proxy = localhost\n";
        assert!(wgetrc.ends_with(last), "{wgetrc}");
        let last = "#clear Acquire::http::Proxy;\nAcquire::http::Proxy \"http://127.0.0.1:3128\";\n\
                    #clear Acquire::https::Proxy;\nAcquire::https::Proxy \"http://127.0.0.1:3128\";\n";
        assert!(apt.ends_with(last), "{apt}");
        assert!(curlrc.starts_with("proxy = http://127.0.0.1:9\nnoproxy = *\n"), "{curlrc}");
        assert!(curlrc.ends_with("proxy = \"http://127.0.0.1:3128\"\nnoproxy = \"localhost\"\n"), "{curlrc}");
        assert_eq!(modes, [0o600; 3]);
        let again = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        let (_, [other_wgetrc, other_apt, other_curlrc], _) = write(Some(8080), "", &again);
        assert_eq!(other_curlrc, curlrc.replace("3128", "8080"));
        assert_eq!(other_wgetrc, wgetrc.replace("3128", "8080"));
        assert_eq!(other_apt, apt.replace("3128", "8080"));
        let none = |name: &str| (name == "WGETRC").then(|| "none".into());
        let (_, [wgetrc, apt, _], modes) = write(None, "", &none);
        assert!(!wgetrc.contains("proxy =") && !apt.contains("::Proxy"), "{wgetrc}{apt}");
        assert_eq!(modes[..2], [0o644; 2]);
        assert_eq!(write(Some(3128), "name:password@", &none).2, [0o600; 3], "only the owner may read the password");
    }

    #[test]
    fn proxy_settings_are_left_out_without_a_known_proxy() {
        let home = tempfile::tempdir().unwrap();
        let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
        let roots = roots::bundle(None).unwrap();
        let told = TrustFiles {
            directory: home.path(),
            roots: &roots,
            ca_pem: ca.cert_pem(),
            proxy: None,
            credentials: "",
            direct: "",
        };
        let all = told.variables(|_| None).unwrap();
        assert!(
            !all.iter().any(|(name, value)| name.ends_with("_proxy") || value.to_string_lossy().contains("proxyHost"))
        );
    }
}
