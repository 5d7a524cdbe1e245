//! The variables by which programs are told whom to trust, with the files that they name. What is set already is kept
//! and added to, where a variable can hold more than one thing.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::tls::{Ca, CaError, Roots, roots};

/// The bundle's name in the directory.
pub(in crate::cli) const BUNDLE: &str = "bundle.pem";

/// Writes the files into the directory. `set`: what a variable is set to now.
pub(in crate::cli) fn variables(
    directory: &Path,
    roots: &Roots,
    ca: &Ca,
    set: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(&'static str, OsString)>, CaError> {
    let set = |name| set(name).filter(|value| !value.is_empty());
    let bundle = directory.join(BUNDLE);
    roots::write_bundle(&bundle, roots, ca)?;
    let java = directory.join("java.jks");
    roots::write_java(&java, roots, ca)?;
    let mut all: Vec<_> = TRUST.iter().map(|name| (*name, OsString::from(&bundle))).collect();
    all.push(("JAVA_TOOL_OPTIONS", java_options(&java, set("JAVA_TOOL_OPTIONS"))));
    // Neither is of use to most: what cannot be written is left out.
    all.extend(php(directory, &bundle, set("PHP_INI_SCAN_DIR")).map(|value| ("PHP_INI_SCAN_DIR", value)));
    all.extend(apt(directory, &bundle, set("APT_CONFIG")).map(|value| ("APT_CONFIG", value)));
    Ok(all)
}

fn java_options(store: &Path, set: Option<OsString>) -> OsString {
    let store = store.display().to_string();
    // The JVM takes quotes away.
    let quote = if store.contains('"') { "'" } else { "\"" };
    let ours = format!("-Djavax.net.ssl.trustStore={quote}{store}{quote}");
    added(set, " ", &ours)
}

/// The empty place is the one that PHP was built with.
fn php(directory: &Path, bundle: &Path, set: Option<OsString>) -> Option<OsString> {
    let own = directory.join("php");
    fs::create_dir_all(&own).ok()?;
    let bundle = bundle.display();
    let settings = format!("openssl.cafile=\"{bundle}\"\ncurl.cainfo=\"{bundle}\"\n");
    fs::write(own.join("politely.ini"), settings).ok()?;
    Some(added(Some(set.unwrap_or_default()), ":", own.to_str()?))
}

/// It names one file, so that what the user has set up is in ours.
fn apt(directory: &Path, bundle: &Path, set: Option<OsString>) -> Option<OsString> {
    let file = directory.join("apt.conf");
    let theirs = set.map(PathBuf::from).filter(|theirs| *theirs != file);
    let mut settings = theirs.and_then(|theirs| fs::read_to_string(theirs).ok()).unwrap_or_default();
    settings += &format!("\nAcquire::https::CAInfo \"{}\";\n", bundle.display());
    fs::write(&file, settings).ok()?;
    Some(file.into())
}

/// Once, however often it is asked for.
fn added(set: Option<OsString>, separator: &str, ours: &str) -> OsString {
    match set {
        None => ours.into(),
        Some(set) if set.to_string_lossy().contains(ours) => set,
        Some(set) => [set.as_os_str(), OsStr::new(separator), OsStr::new(ours)].into_iter().collect(),
    }
}

/// Those that take a bundle of roots.
const TRUST: [&str; 12] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "DENO_CERT",
    "HTTPLIB2_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "PERL_LWP_SSL_CA_FILE",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_already_is_kept_and_added_to_once() {
        let home = tempfile::tempdir().unwrap();
        let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
        let roots = roots::bundle(None).unwrap();
        let theirs = home.path().join("theirs.conf");
        fs::write(&theirs, "Acquire::Retries 3;").unwrap();
        let find = |all: &[(&str, OsString)], wanted: &str| {
            let found =
                all.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_str().unwrap().to_owned());
            found.unwrap_or_else(|| panic!("{wanted}")).replace(home.path().to_str().unwrap(), "HOME")
        };
        let none = variables(home.path(), &roots, &ca, |_| None).unwrap();
        assert_eq!(find(&none, "PERL_LWP_SSL_CA_FILE"), "HOME/bundle.pem");
        assert_eq!(find(&none, "JAVA_TOOL_OPTIONS"), "-Djavax.net.ssl.trustStore=\"HOME/java.jks\"");
        assert_eq!(find(&none, "PHP_INI_SCAN_DIR"), ":HOME/php");
        let before = |name: &str| match name {
            "JAVA_TOOL_OPTIONS" => Some("-Xmx1g".into()),
            "PHP_INI_SCAN_DIR" => Some("/etc/php".into()),
            "APT_CONFIG" => Some(theirs.clone().into()),
            _ => Some("theirs".into()),
        };
        let some = variables(home.path(), &roots, &ca, before).unwrap();
        assert_eq!(find(&some, "JAVA_TOOL_OPTIONS"), "-Xmx1g -Djavax.net.ssl.trustStore=\"HOME/java.jks\"");
        assert_eq!(find(&some, "PHP_INI_SCAN_DIR"), "/etc/php:HOME/php");
        let apt = fs::read_to_string(home.path().join("apt.conf")).unwrap();
        assert!(apt.starts_with("Acquire::Retries 3;\nAcquire::https::CAInfo \""), "{apt}");
        let again = |name: &str| some.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        for name in ["JAVA_TOOL_OPTIONS", "PHP_INI_SCAN_DIR"] {
            assert_eq!(find(&variables(home.path(), &roots, &ca, again).unwrap(), name), find(&some, name));
        }
    }
}
