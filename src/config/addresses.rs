//! Checks the addresses that the proxy listens on and connects to: each address, and conflicts between them.

use std::collections::HashMap;

use crate::policy::HostPattern;

use super::read::sections::Sections;
use super::schema::values::ListenAddress;
use super::settings::Settings;

pub(super) fn listeners(settings: &Settings, check: &mut Sections<'_>) {
    let Settings { listen, admin, access, .. } = settings;
    if listen.is_empty() {
        let hint = "write `listen: [{ address: 127.0.0.1:3128 }]`";
        check.fault(&["listen"], "there is no address to listen on", hint);
    }
    let open_to_all = access.is_open_to_all() && check.is_sure("access");
    let mut known = HashMap::new();
    for (index, listener) in listen.iter().enumerate() {
        let (address, number) = (&listener.address, index.to_string());
        let key = ["listen", &number, "address"];
        if address.is_loopback() == Some(false) && open_to_all && !listener.takes_certificates() {
            let hint = "set `access`, such as `clients: [10.0.0.0/8]`, or listen on 127.0.0.1";
            check.fault(&key, format!("anybody who can reach `{address}` could use this proxy"), hint);
        }
        if let Some(first) = known.insert(address, index.to_string()).filter(|_| is_same(address, address)) {
            for key in [["listen", &first, "address"], key] {
                check.fault(&key, format!("`{address}` appears twice"), "leave out one of them");
            }
        }
    }
    for (index, host) in admin.hosts.iter().enumerate() {
        if *host == HostPattern::Any {
            let what = "`*` would allow DNS rebinding: any web site could point one of its names here";
            let hint =
                "name the hosts by which the admin address is reached, such as `proxy.example` or `*.cluster.local`";
            check.fault(&["admin", "hosts", &index.to_string()], what, hint);
        }
    }
    let Some(address) = &admin.address else { return };
    let key = ["admin", "address"];
    if check.is_sure("listen") && listen.iter().any(|listener| is_same(&listener.address, address)) {
        let hint = "give the admin address another port, or write `off`";
        check.fault(&key, format!("`{address}` is already one of the proxy's listeners"), hint);
    }
    if address.is_loopback() == Some(false) && admin.token_file.is_none() {
        let hint = "add `token_file: …`, or use an address of 127.0.0.1";
        check.fault(&key, format!("anybody who can reach `{address}` could control this proxy"), hint);
    }
}

/// Whether two addresses are the same. Addresses with port 0 are never the same, as the system chooses a port for each.
fn is_same(one: &ListenAddress, other: &ListenAddress) -> bool {
    one == other && !matches!(one, ListenAddress::Socket(address) if address.port() == 0)
}

pub(super) fn egress(settings: &Settings, check: &mut Sections<'_>) {
    let Settings { egress, .. } = settings;
    let Some(url) = &egress.upstream_proxy else { return };
    let (key, url) = (["egress", "upstream_proxy"], url.expose());
    let port = url.port_or_known_default();
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        check.fault(&key, "the URL of a proxy must end after its port", "leave out what follows the port");
    }
    let is_own = |address: &ListenAddress| match (address, url.host()) {
        (ListenAddress::Socket(own), _) if own.port() == 0 || Some(own.port()) != port => false,
        (ListenAddress::Socket(own), Some(url::Host::Ipv4(ip))) => is_reached_by(own, ip.into()),
        (ListenAddress::Socket(own), Some(url::Host::Ipv6(ip))) => is_reached_by(own, ip.into()),
        (ListenAddress::Socket(own), Some(url::Host::Domain(name))) => name == "localhost" && own.ip().is_loopback(),
        (ListenAddress::Socket(_), None) | (ListenAddress::Inherited(_), _) => false,
    };
    let listens = settings.listen.iter().map(|listener| &listener.address).filter(|_| check.is_sure("listen"));
    let admin = settings.admin.address.iter().filter(|_| check.is_sure("admin"));
    if listens.chain(admin).any(is_own) {
        check.fault(&key, "this proxy itself listens on this address", "name another proxy, or leave the key out");
    }
}

/// Whether a connection to `address`, at the port of our listener `own`, reaches that listener.
fn is_reached_by(own: &std::net::SocketAddr, address: std::net::IpAddr) -> bool {
    let (own, address) = (own.ip().to_canonical(), address.to_canonical());
    own == address || own.is_unspecified() && address.is_loopback()
}
