//! Connections to origins: which are kept, which are shared, and what becomes of those that die.

mod broken;
mod kept;
mod private;
mod robots;
mod servers;
mod shared;
mod window;

use crate::support::proxy::configuration;
use crate::support::test_ca;
use politely::config::Settings;
use politely::http1::Framing;
use politely::policy::Authority;
use politely::upstream::{GetError, Got, OriginRoots, Outgoing, OutgoingFields, Route, Unanswered, Upstream, Want};
use std::sync::Arc;

/// The way to origins with the settings of the end-to-end tests and `yaml` laid over them.
fn upstream(yaml: &str) -> Upstream {
    let settings = settings(yaml);
    let roots = politely::tls::roots::bundle(Some(test_ca().pem_file())).unwrap();
    Upstream::new(&settings, OriginRoots { store: roots.store, pem: roots.pem.into() }, Vec::new()).unwrap()
}

fn settings(yaml: &str) -> Arc<Settings> {
    Arc::new(Settings::parse("test.yaml", &configuration("/nonexistent".as_ref(), yaml)).unwrap())
}

/// Puts other settings in force.
fn reload(upstream: &Upstream, settings: &Arc<Settings>) {
    upstream.adopt(upstream.prepare(settings, None, Vec::new()).unwrap());
}

async fn route(upstream: &Upstream, url: &str) -> Route {
    upstream.reach_for(&Authority::from_url(url).unwrap(), None, None, None).await.unwrap()
}

fn asking(target: &str) -> Outgoing<'_> {
    Outgoing {
        method: "GET",
        target: target.as_bytes(),
        fields: OutgoingFields::Own(&[("User-Agent", b"ExampleBot")]),
        framing: Framing::None,
        expects_continue: false,
        received: http::Version::HTTP_11,
        user_agent: None,
        upgrade: None,
        asked: None,
        conditions: &[],
    }
}

/// An answer. Where a connection that was kept turns out to be dead, or a shared one to be closing, it is asked for again.
async fn fetch(route: &Route, mut want: Want, request: &Outgoing<'_>) -> Result<Got, GetError> {
    loop {
        match route.ask(want, request, |_| true).await {
            Ok(got) => return Ok(got),
            Err(Unanswered { again: Some(again), .. }) => want = again,
            Err(Unanswered { error, again: None }) => return Err(error),
        }
    }
}

/// Status, body, and whether the connection was used before.
async fn get(route: &Route, target: &str) -> Result<(u16, String, bool), GetError> {
    get_with(route, target, Want::default()).await
}

async fn get_with(route: &Route, target: &str, want: Want) -> Result<(u16, String, bool), GetError> {
    let mut got = crate::support::within("the answer", fetch(route, want, &asking(target))).await?;
    let mut body = Vec::new();
    while let Some(piece) = crate::support::within("a piece of the body", got.body.chunk()).await? {
        body.extend_from_slice(&piece);
    }
    Ok((got.status, String::from_utf8(body).unwrap(), got.reused))
}

/// Fetches a page successfully. Returns whether the connection was reused.
async fn page(route: &Route, target: &str) -> bool {
    let (status, body, reused) = get(route, target).await.unwrap();
    assert_eq!((status, body), (200, format!("page {target}")));
    reused
}
