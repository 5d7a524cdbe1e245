//! The directory of signing keys, on listeners that serve it: to anybody, before access is checked.

use super::carry::Client;
use super::flush;
use super::outcome::{About, FinalStep, Outcome};
use super::request::Unread;
use super::state::Trip;
use crate::policy::Refusal;
use crate::proxy::Proxy;
use crate::proxy::client::Peer;
use crate::proxy::io::Timer;
use crate::proxy::respond::{Answer, directory};
use crate::signing::DIRECTORY_PATH;
use std::time::SystemTime;
use tokio::time::Instant;

/// The directory, if this asks for it. `authority`: that of an HTTP/2 request, which does not say whether it is for a proxy:
/// only under the agent's own name it is ours.
pub fn published(proxy: &Proxy, peer: &Peer, method: &str, path: &[u8], authority: Option<&str>) -> Option<Answer> {
    let is_asked = peer.gets_directory
        && peer.tunnel.is_none()
        && path == DIRECTORY_PATH.as_bytes()
        && matches!(method, "GET" | "HEAD");
    let signer = proxy.upstream.signer().filter(|_| is_asked)?;
    let agent = signer.directory().agent().authority();
    authority
        .is_none_or(|named| named.eq_ignore_ascii_case(agent))
        .then(|| directory(&signer.directory().publish(SystemTime::now())))
}

/// Answers so. In HTTP/1 nothing is kept of the connection.
pub async fn publish<C: Client>(
    proxy: &Proxy,
    answer: Answer,
    peer: &Peer,
    began: Instant,
    client: &mut C,
    timer: &mut Timer,
) {
    let unread = Unread { refusal: Refusal::NotAProxyRequest, accept: None, url: None };
    let settings = proxy.settings.load_full();
    let about = About { proxy, settings: &settings, peer, began, request: Err(&unread), trip: &Trip::default() };
    if let FinalStep::Answer(answer) = about.conclude(Outcome::Answered(answer)) {
        client.answer_locally(answer, true);
        flush(&settings, client, timer).await;
    }
}
