//! Hosts that browsers request on their own, for updates, lists of unsafe sites and the like. Such requests do not belong to a crawl. Pure.

use super::Authority;

/// Whether browsers request this URL, or this authority, in the background.
pub fn is_background(url: &str) -> bool {
    Authority::from_url(url).is_ok_and(|authority| authority.is_background())
}

impl Authority {
    /// Whether browsers request this host in the background.
    pub fn is_background(&self) -> bool {
        let name = self.host().name().unwrap_or_default();
        let is_below = |parent: &&str| name.strip_suffix(*parent).is_some_and(|rest| rest.ends_with('.'));
        HOSTS.contains(&name) || BELOW.iter().any(is_below)
    }
}

/// Background hosts. Only names from which pages load no resources: not www.google.com, www.gstatic.com or fonts.googleapis.com.
const HOSTS: [&str; 29] = [
    // Chromium
    "accounts.google.com",
    "android.clients.google.com",
    "clients1.google.com",
    "clients2.google.com",
    "clients3.google.com",
    "clients4.google.com",
    "clients5.google.com",
    "clients6.google.com",
    "clients2.googleusercontent.com",
    "clientservices.googleapis.com",
    "connectivitycheck.gstatic.com",
    "content-autofill.googleapis.com",
    "dl.google.com",
    "mtalk.google.com",
    "optimizationguide-pa.googleapis.com",
    "passwordsleakcheck-pa.googleapis.com",
    "safebrowsing.googleapis.com",
    "safebrowsing.google.com",
    "safebrowsingohttpgateway.googleapis.com",
    "sb-ssl.google.com",
    "update.googleapis.com",
    // Firefox
    "ads.mozilla.org",
    "aus5.mozilla.org",
    "ciscobinary.openh264.org",
    "detectportal.firefox.com",
    "incoming.telemetry.mozilla.org",
    "mozilla.cloudflare-dns.com",
    "services.addons.mozilla.org",
    "versioncheck.addons.mozilla.org",
];
/// Domains whose subdomains are all background hosts.
const BELOW: [&str; 4] = ["gvt1.com", "services.mozilla.com", "cdn.mozilla.net", "services.mozilla.org"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_hosts_are_only_browser_services() {
        for url in [
            "https://update.googleapis.com/service/update2/json?cup2key=1",
            "http://redirector.gvt1.com/edgedl/chrome/dict/en-us-10-2.bdic",
            "https://firefox.settings.services.mozilla.com",
            "http://detectportal.firefox.com/canonical.html",
        ] {
            assert!(is_background(url), "{url}");
        }
        for url in [
            "https://www.google.com/",
            "https://fonts.googleapis.com/css",
            "https://www.mozilla.org/",
            "https://gvt1.com/",
            "https://notgvt1.com/",
            "https://update.googleapis.com.a.example/",
            "http://127.0.0.1/",
            "no URL",
        ] {
            assert!(!is_background(url), "{url}");
        }
    }
}
