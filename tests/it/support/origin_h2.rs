//! The h2 side of [`super::origin`].

use super::origin::{Site, Wire};
use super::origin_log::Protocol;
use super::pattern;
use super::reply::{Content, Reply};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, site: Site, wire: Wire) {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(4 << 20);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    let mut streams = tokio::task::JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        while streams.try_join_next().is_some() {}
        streams.spawn(exchange(request, respond, site.clone(), wire.clone()));
    }
}

async fn exchange(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    site: Site,
    wire: Wire,
) {
    let mut seen = wire.request(Protocol::Http2);
    let (head, mut body) = request.into_parts();
    seen.method = head.method.to_string();
    seen.target = head.uri.path_and_query().map_or_else(Vec::new, |target| target.as_str().as_bytes().to_vec());
    seen.host = head.uri.authority().map_or_else(String::new, ToString::to_string);
    seen.fields = plain(&head.headers);
    let reply = site.reply(&mut seen);
    let index = site.log.begin(seen);
    let answered = if reply.wait_for_body {
        if !read_body(&mut body, &site, index).await {
            site.log.update(index, |seen| seen.cut = true);
            return;
        }
        answer(&mut respond, reply, &site, index).await
    } else {
        let answered = answer(&mut respond, reply, &site, index).await;
        read_body(&mut body, &site, index).await;
        answered
    };
    if answered.is_err() {
        site.log.update(index, |seen| seen.cut = true);
    }
}

async fn read_body(body: &mut h2::RecvStream, site: &Site, index: usize) -> bool {
    while let Some(piece) = body.data().await {
        let Ok(piece) = piece else { return false };
        body.flow_control().release_capacity(piece.len()).ok();
        site.log.update(index, |seen| seen.body.push(&piece));
    }
    let Ok(trailers) = body.trailers().await else {
        return false;
    };
    site.log.update(index, |seen| {
        seen.body.complete = true;
        seen.body.trailers = trailers.as_ref().map(plain).unwrap_or_default();
    });
    true
}

async fn answer(
    respond: &mut h2::server::SendResponse<Bytes>,
    reply: Reply,
    site: &Site,
    index: usize,
) -> Result<(), h2::Error> {
    if !reply.after.is_zero() {
        tokio::time::sleep(reply.after).await;
    }
    let mut response = http::Response::builder().status(reply.status);
    for (name, value) in &reply.fields {
        response = response.header(name, value);
    }
    let seen = site.log.get(index);
    let bytes = match &reply.body {
        Content::Bytes(bytes) => Bytes::copy_from_slice(bytes),
        Content::Echo => Bytes::copy_from_slice(&seen.body.kept),
        Content::Pattern(_) | Content::Drip(..) => Bytes::new(),
        Content::Silence => {
            // Waits until the client resets the stream.
            let reset = std::future::poll_fn(|context| respond.poll_reset(context)).await?;
            return Err(reset.into());
        }
        Content::Reset => {
            respond.send_reset(h2::Reason::INTERNAL_ERROR);
            return Ok(());
        }
        Content::Raw(_) | Content::WebSocket => panic!("an HTTP/1 answer asked of an h2 origin"),
    };
    if let Content::Bytes(_) | Content::Echo = reply.body {
        response = response.header("content-length", bytes.len());
    }
    let response = response.body(()).expect("fields that HTTP allows");
    let without_body = seen.method == "HEAD" || matches!(reply.status, 204 | 304);
    let mut stream = respond.send_response(response, without_body)?;
    if without_body {
        return Ok(());
    }
    match &reply.body {
        Content::Pattern(length) => {
            let mut sent = 0;
            while sent < *length {
                let piece = pattern::piece(sent, *length);
                send(&mut stream, Bytes::from_static(piece)).await?;
                sent += piece.len() as u64;
            }
        }
        Content::Drip(pieces, pause) => {
            for piece in pieces {
                tokio::time::sleep(*pause).await;
                send(&mut stream, Bytes::copy_from_slice(piece)).await?;
            }
        }
        Content::Bytes(_) | Content::Echo => send(&mut stream, bytes).await?,
        Content::Raw(_) | Content::Silence | Content::Reset | Content::WebSocket => {}
    }
    if reply.trailers.is_empty() {
        return stream.send_data(Bytes::new(), true);
    }
    let mut trailers = http::HeaderMap::new();
    for (name, value) in &reply.trailers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a field name");
        trailers.append(name, value.parse().expect("a field value"));
    }
    stream.send_trailers(trailers)
}

/// Sends all `bytes`, within the peer's window.
pub(super) async fn send(stream: &mut h2::SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
        let capacity = capacity.ok_or(h2::Error::from(h2::Reason::CANCEL))??;
        stream.send_data(bytes.split_to(capacity.min(bytes.len())), false)?;
    }
    Ok(())
}

pub(super) fn plain(fields: &http::HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    fields.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
