//! Requests for another protocol on the same connection (WebSocket, RFC 6455): decided like any other, then carried
//! here, for pingora 0.9.1 ends a connection whose 101 is there before it has looked at the end of its own request.
//! Called by `connection`.

use super::decide::{Decided, Go};
use super::downstream::Downstream;
use super::failure::Failure;
use super::head::RequestHead;
use super::origin_head::{Answering, Framing, Limits};
use super::record::Record;
use super::respond::{Answer, Asked};
use super::wire::{send, to_wire};
use super::{Proxy, arrival, fields, head, tunnel};
use crate::gate::{Outcome, Reported};
use crate::policy::Refusal;
use crate::upstream::{ReachError, Stream};
use bytes::BytesMut;
use http::{HeaderValue, StatusCode, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::protocols::http::v1::client::http_req_header_to_wire;
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

/// How a request ended that was not handed on, or could not be.
enum Unanswered {
    Copy(Answer),
    Refused(Refusal),
    Failed(Failure),
    /// There is nobody to tell, or no way to.
    Gone(io::Error),
}

/// Gives the connection back if another request may follow.
pub(super) async fn upgrade(
    proxy: &Proxy,
    mut io: Box<Downstream>,
    request: RequestHead,
) -> io::Result<Option<Box<Downstream>>> {
    let began = Instant::now();
    let head = head::header(&request.bytes).map_err(io::Error::other)?;
    let url = format!("{}{}", request.authority, String::from_utf8_lossy(head.raw_path()));
    let accept = head.headers.get(header::ACCEPT).cloned();
    let asked = Asked { url: Some(&url), accept: accept.as_ref().map(HeaderValue::as_bytes) };
    let mut reported = None;
    let carried = carry(proxy, &mut io, &request, head, &mut reported).await;
    let mut record = Record {
        client: Some(io.client.address.ip()),
        method: "GET",
        url: &url,
        status: 0,
        began,
        refused: None,
        reported: reported.as_ref(),
        error: None,
    };
    let answer = match carried {
        Ok((status, origin)) => {
            proxy.counters.forwarded();
            record.status = status.as_u16();
            record.write();
            if let Some(origin) = origin {
                io.open();
                tunnel::run(io, origin, proxy.settings.load().limits.read_timeout).await;
            } else {
                super::connection::linger(&mut io).await?;
            }
            return Ok(None);
        }
        Err(Unanswered::Gone(error)) => {
            proxy.counters.failed();
            record.error = Some(error.to_string());
            record.write();
            return Ok(None);
        }
        Err(Unanswered::Copy(answer)) => {
            proxy.counters.forwarded();
            answer
        }
        Err(Unanswered::Refused(refusal)) => {
            proxy.tell_refused(record.client, Some(record.url), &refusal);
            record.refused = Some(refusal.slug());
            Answer::refusal(&refusal, &asked, &proxy.settings.load()).map_err(io::Error::other)?
        }
        Err(Unanswered::Failed(failure)) => {
            proxy.counters.failed();
            record.refused = Some(failure.error);
            Answer::failure(&failure, &asked).map_err(io::Error::other)?
        }
    };
    record.status = answer.status().as_u16();
    record.write();
    // The handshake has no body, so nothing is left of it.
    answer.write(&mut io, false, proxy.settings.load().limits.read_timeout).await?;
    Ok(Some(io))
}

/// Hands it on, and the answer back. With the status comes the connection that speaks the other protocol now, if the
/// origin agrees to that.
async fn carry(
    proxy: &Proxy,
    io: &mut Downstream,
    request: &RequestHead,
    mut head: RequestHeader,
    reported: &mut Option<Reported>,
) -> Result<(StatusCode, Option<Stream>), Unanswered> {
    let client = io.client.clone();
    arrival::screen(&head, &client).map_err(Unanswered::Refused)?;
    let wanted = proxy.wanted(&head);
    let decided = tokio::select! {
        biased;
        decided = proxy.decide(&wanted, &request.authority, &client) => decided.map_err(Unanswered::Refused)?,
        () = io.left() => return Err(Unanswered::Gone(io::ErrorKind::ConnectionAborted.into())),
    };
    let Go { mut permit, reported: would, route } = match decided {
        Decided::Go(go) => *go,
        Decided::Robots(copy) => {
            return Err(fields::robots_copy(&head, &copy)
                .map_or_else(|error| Unanswered::Gone(io::Error::other(error)), Unanswered::Copy));
        }
    };
    reported.clone_from(&would);
    let route = match route {
        Some(route) => route,
        None => proxy.upstream.reach(&request.authority).await.map_err(|error| match error {
            ReachError::Denied(denied) => Unanswered::Refused(denied.into()),
            ReachError::Resolve(error) => Unanswered::Failed(Failure::from_resolve(&error)),
        })?,
    };
    let origin = tokio::select! {
        origin = route.open() => origin.map_err(|error| Unanswered::Failed(Failure::from_dial(&error)))?,
        () = io.left() => return Err(Unanswered::Gone(io::ErrorKind::ConnectionAborted.into())),
    };
    let failed = |error: Box<pingora::Error>| match Failure::from_pingora(&error) {
        Some(failure) => Unanswered::Failed(failure),
        None => Unanswered::Gone(io::Error::other(error)),
    };
    let limits = &proxy.settings.load().limits;
    let size = usize::try_from(limits.max_header_size).unwrap_or(usize::MAX);
    let limits = Limits { wait: limits.read_timeout, rate: limits.min_rate, size };
    let mut answering = Answering { origin, ahead: BytesMut::new(), limits };
    proxy.outgoing(&mut head, &request.authority, Version::HTTP_11).map_err(failed)?;
    permit.leaves();
    let octets = http_req_header_to_wire(&head).ok_or_else(|| Unanswered::Failed(Failure::malformed("the target")))?;
    let sent = send(&mut answering.origin, &octets, limits.wait).await;
    sent.map_err(|error| Unanswered::Failed(Failure::ended(error)))?;
    permit.has_left();

    let mut permit = Some(permit);
    for _ in 0..=MAX_INTERIM {
        let answered = tokio::select! {
            answered = answering.head() => answered.map_err(Unanswered::Failed)?,
            () = io.left() => return Err(Unanswered::Gone(io::ErrorKind::ConnectionAborted.into())),
        };
        let mut response = answered;
        let switched = response.status == StatusCode::SWITCHING_PROTOCOLS;
        if response.status.is_informational() && !switched {
            fields::strip_response(&mut response);
            send(io, &to_wire(&response), limits.wait).await.map_err(Unanswered::Gone)?;
            continue;
        }
        if switched && !agrees(&response) {
            return Err(Unanswered::Failed(Failure::malformed("it switches to another protocol than was asked for")));
        }
        let framing = if switched { None } else { Some(Framing::of(&response).map_err(Unanswered::Failed)?) };
        proxy.incoming(&mut response, &mut permit, would.as_ref(), Some(&route)).map_err(failed)?;
        finish(&mut response, switched).map_err(failed)?;
        send(io, &to_wire(&response), limits.wait).await.map_err(Unanswered::Gone)?;
        return match framing {
            // What follows are no requests, and may go on for hours: the turn is over.
            None => {
                send(io, &answering.ahead, limits.wait).await.map_err(Unanswered::Gone)?;
                Ok((response.status, Some(answering.origin)))
            }
            Some(framing) => {
                answering.body(framing, io).await.map_err(Unanswered::Gone)?;
                // The origin is told that nothing more comes; it may not care.
                let _ = timeout(limits.wait, answering.origin.shutdown()).await;
                Ok((response.status, None))
            }
        };
    }
    if let Some(permit) = &mut permit {
        permit.outcome = Outcome::Failure;
    }
    Err(Unanswered::Failed(Failure::malformed("interim answers without end")))
}

/// RFC 6455 §4.1: 101 names the protocol.
fn agrees(response: &ResponseHeader) -> bool {
    let lists = |name, wanted: &[u8]| {
        let lines = response.headers.get_all(name).iter();
        let mut members = lines.flat_map(|line| line.as_bytes().split(|&octet| octet == b','));
        members.any(|member| member.trim_ascii().eq_ignore_ascii_case(wanted))
    };
    lists(header::UPGRADE, b"websocket") && lists(header::CONNECTION, b"upgrade")
}

/// The fields of this hop.
fn finish(response: &mut ResponseHeader, switched: bool) -> pingora::Result<()> {
    if switched {
        // A 101 has no body (RFC 9110 §8.6, RFC 9112 §6.1), whatever it says.
        response.remove_header(&header::CONTENT_LENGTH);
        response.remove_header(&header::TRANSFER_ENCODING);
        response.insert_header(header::CONNECTION, "upgrade")?;
        response.insert_header(header::UPGRADE, "websocket")
    } else {
        response.insert_header(header::CONNECTION, "close")
    }
}

/// Two are common (100 and 103); each starts the wait for the final one anew.
const MAX_INTERIM: u32 = 32;
