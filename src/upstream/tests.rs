//! Which routes to origins are found, depending on settings and addresses.

use super::*;
use crate::policy::Scheme;
use rustls::RootCertStore;

const PUBLIC: &str = "198.41.0.4";

pub fn upstream(yaml: &str) -> Upstream {
    let settings = Arc::new(Settings::parse("test.yaml", yaml).unwrap());
    let root = &webpki_root_certs::TLS_SERVER_ROOT_CERTS[0];
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let pem = pem::encode(&pem::Pem::new("CERTIFICATE", root.to_vec())).into();
    let roots = OriginRoots { store: Arc::new(roots), pem };
    Upstream::new(&settings, roots, vec!["127.0.0.1:80".parse().unwrap()]).unwrap()
}

async fn reached(upstream: &Upstream, addresses: &[&str]) -> Result<Vec<String>, String> {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    upstream.resolver.remember("rebind.example", &addresses);
    let authority = Authority::new(Scheme::Https, "rebind.example", None).unwrap();
    let reached = upstream.reach_for(&authority, None, None, None).await.map_err(|error| error.to_string())?;
    Ok(reached.0.addresses.iter().map(ToString::to_string).collect())
}

/// The addresses of a name may change from public to private between two look-ups. Each answer is screened, and only screened addresses are
/// dialled.
#[tokio::test]
async fn changed_address_of_a_name_is_screened_again() {
    let upstream = upstream("");
    assert_eq!(reached(&upstream, &[PUBLIC]).await.unwrap(), ["198.41.0.4:443"]);
    for private in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
        assert!(reached(&upstream, &[private]).await.is_err(), "{private}");
    }
    assert!(reached(&upstream, &[PUBLIC]).await.is_ok());
}

/// A request that is forbidden both before and after a reload must not pass during it.
#[tokio::test]
async fn route_is_refused_to_a_request_with_other_settings() {
    let upstream = upstream("");
    let authority = Authority::new(Scheme::Https, PUBLIC, None).unwrap();
    let (mut last, now) = (LastRoute::default(), Instant::now());
    let before = upstream.reach.load().made_of.clone();
    let after = Arc::new(Settings::default());
    for (in_force, other) in [(&before, &after), (&after, &before)] {
        let listeners = upstream.reach.load().guard.listeners.clone();
        upstream.adopt(upstream.prepare(in_force, None, listeners).unwrap());
        assert!(upstream.reach_again(in_force, &authority, ClientId(1), None, now, &mut last).await.is_ok());
        let late = upstream.reach_again(other, &authority, ClientId(1), None, now, &mut last).await;
        assert!(matches!(late, Err(ReachError::Reloaded)));
    }
}

/// Requests that arrive together must get the same endpoint, so that they can share connections.
#[tokio::test]
async fn concurrent_requests_get_the_same_endpoint() {
    let upstream = Arc::new(upstream("egress: { ports: ['1-65535'] }"));
    let together = Arc::new(std::sync::Barrier::new(2));
    for port in 1..=2000 {
        let authority = Authority::new(Scheme::Https, PUBLIC, Some(port)).unwrap();
        let reach = |upstream: Arc<Upstream>, together: Arc<std::sync::Barrier>| {
            let authority = authority.clone();
            std::thread::spawn(move || {
                together.wait();
                futures_util::FutureExt::now_or_never(upstream.reach_for(&authority, None, None, None))
                    .unwrap()
                    .unwrap()
            })
        };
        let both = [reach(upstream.clone(), together.clone()), reach(upstream.clone(), together.clone())];
        let [one, other] = both.map(|reached| reached.join().unwrap());
        assert!(Arc::ptr_eq(&one.0.endpoint, &other.0.endpoint), "{authority}");
    }
}

#[tokio::test]
async fn only_allowed_addresses_of_a_name_are_dialled() {
    let upstream = upstream("");
    let mixed = ["10.0.0.1", PUBLIC, "::1", "169.254.169.254"];
    assert_eq!(reached(&upstream, &mixed).await.unwrap(), ["198.41.0.4:443"]);
}

/// Without the limit, the owner of a name could make one request connect to any number of addresses.
#[tokio::test]
async fn sixteen_addresses_are_dialled_but_all_are_screened() {
    let upstream = upstream("");
    let many: Vec<_> = (0..200).map(|last| format!("198.41.0.{last}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let all = [&["10.0.0.1"], &many[..], &["2001:500::4"]].concat();
    let dialled = reached(&upstream, &all).await.unwrap();
    assert_eq!(dialled.len(), 16);
    assert!(dialled.contains(&"[2001:500::4]:443".to_owned()) && !dialled.contains(&"10.0.0.1:443".to_owned()));
    let all = [&many[..], &["127.0.0.1"]].concat();
    let authority = Authority::new(Scheme::Http, "rebind.example", Some(80)).unwrap();
    upstream.resolver.remember("rebind.example", &all.iter().map(|it| it.parse().unwrap()).collect::<Vec<_>>());
    let denied = upstream.reach_for(&authority, None, None, None).await.err().unwrap();
    assert!(matches!(denied, ReachError::Denied(Denied::OwnListener(_))), "{denied}");
}

#[tokio::test]
async fn name_with_one_of_our_own_addresses_is_denied() {
    let upstream = upstream("egress: { allow: [127.0.0.0/8], ports: [80] }");
    upstream.resolver.remember("rebind.example", &[PUBLIC.parse().unwrap(), "127.0.0.1".parse().unwrap()]);
    let authority = Authority::new(Scheme::Http, "rebind.example", None).unwrap();
    let denied = upstream.reach_for(&authority, None, None, None).await.err().unwrap();
    assert!(matches!(denied, ReachError::Denied(Denied::OwnListener(_))), "{denied}");
}

/// A client that requests so many other names that this name is not looked up must not get past the guard.
#[tokio::test]
async fn upstream_proxy_gets_names_that_do_not_resolve_but_not_names_never_looked_up() {
    let (name, why) = (Arc::<str>::from("rebind.example"), Arc::<str>::from("x"));
    let authority = Authority::new(Scheme::Https, "rebind.example", None).unwrap();
    for (failure, passes) in [
        (ResolveError::Failed { name: name.clone(), why: why.clone() }, true),
        (ResolveError::NoResolver { name: name.clone(), why: why.clone() }, true),
        (ResolveError::TimedOut { name: name.clone(), is_alone: false }, true),
        (ResolveError::OwnLimit { name: name.clone(), why: why.clone() }, false),
    ] {
        let upstream = upstream("egress: { upstream_proxy: 'http://192.0.2.1:3128' }");
        upstream.resolver.remember_failure("rebind.example", failure.clone());
        assert_eq!(upstream.reach_for(&authority, None, None, None).await.is_ok(), passes, "{failure:?}");
    }
}

/// If the pace is kept by address, it is kept for the connection's address, not for a former address of the name.
#[tokio::test]
async fn pace_by_address_reuses_only_connections_to_the_same_address() {
    let one = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = one.local_addr().unwrap().port();
    let Ok(_other) = tokio::net::TcpListener::bind(("127.0.0.3", port)).await else {
        return eprintln!("skipped: another program uses the port at the other address");
    };
    let authority = Authority::new(Scheme::Http, "moves.example", Some(port)).unwrap();
    for (key, reused) in [("address", [false, false, true]), ("host", [false, true, true])] {
        let upstream =
            upstream(&format!("egress: {{ allow: [127.0.0.0/8], ports: ['1-65535'] }}\npace: {{ key: {key} }}"));
        for (last, reused) in [2, 3, 2].into_iter().zip(reused) {
            let address = IpAddr::from([127, 0, 0, last]);
            upstream.resolver.remember("moves.example", &[address]);
            let route = upstream.reach_for(&authority, None, None, None).await.unwrap();
            let connection = route.connect(Want::default(), None).await.unwrap();
            assert_eq!(connection.reused, reused, "{key}");
            assert!(key == "host" || connection.address.ip() == address);
            if let HttpLink::Http1(link) = connection.link {
                link.keep();
            }
        }
    }
}

#[tokio::test]
async fn tls_terms_are_dropped_with_the_settings_that_use_them() {
    let upstream = upstream("");
    let pin = |number: u8| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [number; 32]);
    let mut held = None;
    for number in 0..50 {
        let yaml = format!("hosts: {{ a.example: {{ pin: 'sha256/{}' }}, b.example: {{ verify: off }} }}", pin(number));
        let settings = Arc::new(Settings::parse("test.yaml", &yaml).unwrap());
        upstream.adopt(upstream.prepare(&settings, None, Vec::new()).unwrap());
        // A request in flight keeps its user's settings as of its arrival.
        if number == 3 {
            held = settings.hosts.get(&Authority::from_url("https://a.example").unwrap().host().clone()).tls.clone();
        }
    }
    let reach = upstream.reach.load_full();
    assert!(reach.trust.own() <= 4, "{}", reach.trust.own());
    reach.trust.of(&held.unwrap());
    reach.trust.of(reach
        .made_of
        .hosts
        .get(Authority::from_url("https://b.example").unwrap().host())
        .tls
        .as_ref()
        .unwrap());
}
