//! CONNECT (RFC 9110 §9.3.6): intercepted, tunnelled or denied by the host's policy. Called by `connection`.

use super::downstream::{Client, Downstream, Tunnel};
use super::failure::Failure;
use super::respond::{Answer, Asked};
use super::{Proxy, connection, tunnel};
use crate::config::InterceptMode;
use crate::policy::{Authority, Host, Refusal, Scheme};
use pingora::http::ResponseHeader;
use pingora_core::protocols::raw_connect::ProxyDigest;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

/// `via`: what the CONNECT says of the way so far. Gives the connection back where the CONNECT was refused and another request may follow.
pub(super) async fn connect(
    proxy: &Arc<Proxy>,
    mut io: Box<Downstream>,
    authority: Authority,
    via: Option<&str>,
) -> io::Result<Option<Box<Downstream>>> {
    if via.is_some_and(|via| proxy.via.is_among([via.as_bytes()])) {
        return refuse(proxy, io, &authority, &Refusal::Loop).await;
    }
    match proxy.intercept_mode(&authority, &io.client) {
        // A denied host is denied inside, where the client sees the status.
        InterceptMode::Intercept | InterceptMode::Deny => {
            establish(proxy, &mut io).await?;
            intercept(proxy, io, authority).await?;
            Ok(None)
        }
        InterceptMode::Tunnel => match tunnel::open(proxy, &authority, &io.client, via).await {
            Ok(tunnel::Way { origin, _permit }) => {
                establish(proxy, &mut io).await?;
                io.open();
                tunnel::run(io, origin, proxy.settings.load().limits.read_timeout).await;
                Ok(None)
            }
            Err(tunnel::Closed::Refused(refusal)) => refuse(proxy, io, &authority, &refusal).await,
            Err(tunnel::Closed::Failed(failure)) => {
                fail(proxy, &mut io, &authority, &failure).await?;
                Ok(Some(io))
            }
        },
    }
}

async fn refuse(
    proxy: &Proxy,
    mut io: Box<Downstream>,
    authority: &Authority,
    refusal: &Refusal,
) -> io::Result<Option<Box<Downstream>>> {
    tracing::info!(client = %io.client.address, %authority, refusal = refusal.slug(), "CONNECT refused: {refusal}");
    let url = authority.to_string();
    proxy.tell_refused(Some(io.client.address.ip()), Some(&url), refusal);
    let asked = Asked { url: Some(&url), accept: None };
    let answer = Answer::refusal(refusal, &asked, &proxy.settings.load()).map_err(io::Error::other)?;
    let limit = proxy.settings.load().limits.read_timeout;
    answer.write(&mut io, false, limit).await?;
    Ok(Some(io))
}

async fn fail(proxy: &Proxy, io: &mut Downstream, authority: &Authority, failure: &Failure) -> io::Result<()> {
    let asked = Asked { url: Some(&authority.to_string()), accept: None };
    let limit = proxy.settings.load().limits.read_timeout;
    Answer::failure(failure, &asked).map_err(io::Error::other)?.write(io, false, limit).await
}

async fn establish(proxy: &Proxy, io: &mut Downstream) -> io::Result<()> {
    let limit = proxy.settings.load().limits.read_timeout;
    let told = async {
        io.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").await?;
        io.flush().await
    };
    timeout(limit, told).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Serves what the client sends inside: TLS on our leaf, or plain HTTP. Anything else is closed.
async fn intercept(proxy: &Arc<Proxy>, mut io: Box<Downstream>, authority: Authority) -> io::Result<()> {
    let limit = proxy.settings.load().limits.header_timeout;
    let first = tokio::select! {
        first = timeout(limit, io.peek()) => first,
        () = proxy.stopped() => Ok(Ok(None)),
    };
    match first {
        Ok(Ok(Some(TLS_HANDSHAKE))) => {
            io.open();
            let inside = decrypt(proxy, io, authority).await?;
            Box::pin(connection::serve(proxy.clone(), inside)).await;
        }
        Ok(Ok(Some(byte))) if byte.is_ascii_alphabetic() => {
            io.client.tunnel = Some(Tunnel { authority: authority.with_scheme(Scheme::Http), other_name: None });
            Box::pin(connection::serve(proxy.clone(), io)).await;
        }
        Ok(Ok(Some(_))) => {
            tracing::info!(client = %io.client.address, %authority, "neither TLS nor HTTP inside CONNECT: closed");
            io.shutdown().await?;
        }
        Ok(Ok(None)) | Err(_) => io.shutdown().await?,
        Ok(Err(error)) => return Err(error),
    }
    Ok(())
}

async fn decrypt(proxy: &Proxy, io: Box<Downstream>, connected: Authority) -> io::Result<Box<Downstream>> {
    let (address, user) = (io.client.address, io.client.user.clone());
    let handshake = async {
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), io).await?;
        let name = hello.client_hello().server_name().map(str::to_owned);
        let tunnel = agree(connected, name.as_deref());
        // The leaf is for the name that the client asks for, so that it can read the 421 that a wrong name earns.
        let host = match &tunnel.other_name {
            Some(name) => Host::parse(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
            None => tunnel.authority.host().clone(),
        };
        if proxy.leaves.is_new(&host) {
            proxy.mints.turn(address.ip()).await;
        }
        let config = proxy.leaves.config_for(&host);
        Ok::<_, io::Error>((hello.into_stream(config).await?, tunnel))
    };
    let limit = proxy.settings.load().limits.header_timeout;
    let (tls, tunnel) = timeout(limit, handshake).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let client = Client { address, tunnel: Some(tunnel), user };
    let mut inside = Box::new(Downstream::decrypted(tls, client.clone()));
    if inside.is_h2() {
        let head = ResponseHeader::build(200, Some(0)).map_err(io::Error::other)?;
        inside.open();
        inside.tag(ProxyDigest::new(Box::new(head), Some(Box::new(client))));
    }
    Ok(inside)
}

/// The authority that CONNECT and ClientHello mean together. A name stands for an address that CONNECT gave; two
/// different names do not agree.
fn agree(connected: Authority, name: Option<&str>) -> Tunnel {
    let Some(name) = name else { return Tunnel { authority: connected, other_name: None } };
    match Authority::new(Scheme::Https, name, Some(connected.port())) {
        Ok(named) if named == connected => Tunnel { authority: connected, other_name: None },
        Ok(named) if connected.host().ip().is_some() && named.host().name().is_some() => {
            Tunnel { authority: named, other_name: None }
        }
        Ok(_) | Err(_) => Tunnel { authority: connected, other_name: Some(name.to_owned()) },
    }
}

/// The content type of a TLS record that begins a handshake (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 0x16;

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(connected: &str, name: Option<&str>) -> (String, Option<String>) {
        let tunnel = agree(Authority::parse_connect(Scheme::Https, connected.as_bytes()).unwrap(), name);
        (tunnel.authority.to_string(), tunnel.other_name)
    }

    #[test]
    fn the_name_in_the_client_hello_must_be_connects() {
        assert_eq!(agreed("a.example:443", Some("A.example")), ("https://a.example".into(), None));
        assert_eq!(agreed("a.example:443", None), ("https://a.example".into(), None));
        assert_eq!(agreed("a.example:443", Some("b.example")), ("https://a.example".into(), Some("b.example".into())));
    }

    #[test]
    fn a_name_stands_for_an_address() {
        assert_eq!(agreed("192.0.2.1:8443", Some("a.example")), ("https://a.example:8443".into(), None));
        assert_eq!(agreed("[2001:db8::1]:443", None), ("https://[2001:db8::1]".into(), None));
    }
}
