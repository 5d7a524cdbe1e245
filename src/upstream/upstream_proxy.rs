//! The upstream proxy (`egress.upstream_proxy`): its address, our credentials, and CONNECT requests to it (RFC 9110 §9.3.6, §11.7.2).

use super::dial_error::{DialError, DialFault};
use crate::config::SecretUrl;
use crate::http1::{MAX_INTERIM, read_response};
use crate::policy::Authority;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// An upstream proxy. Neither `Debug` nor `Display` shows its credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UpstreamProxy {
    pub(super) at: Authority,
    /// The value of Proxy-Authorization.
    pub(super) credentials: Option<HeaderValue>,
}

impl UpstreamProxy {
    pub(super) fn new(url: &SecretUrl) -> Self {
        let at = url.authority().expect("reading the configuration checks it");
        let url = url.expose();
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let (user, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        let credentials = (!user.is_empty() || !password.is_empty()).then(|| {
            let coded = BASE64_STANDARD.encode([user, password].join(&b':'));
            let mut value = HeaderValue::try_from(format!("Basic {coded}")).expect("Base64 is printable");
            value.set_sensitive(true);
            value
        });
        UpstreamProxy { at, credentials }
    }

    /// The error if the upstream proxy rejects our credentials, or requires credentials.
    pub fn wants_credentials(&self) -> DialError {
        let what = match self.credentials {
            Some(_) => "does not accept our credentials",
            None => "requires credentials, and `egress.upstream_proxy` has none",
        };
        DialError::new(DialFault::Credentials, format!("{self} {what}"))
    }

    /// Requests a tunnel to the authority. `via`: the value of Via, for detecting loops. Returns bytes after the answer, which are the
    /// origin's.
    pub(super) async fn connect<S>(
        &self,
        stream: &mut S,
        authority: &Authority,
        via: &str,
    ) -> Result<Vec<u8>, DialError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let target = format!("{}:{}", authority.host(), authority.port());
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nVia: {via}\r\n").into_bytes();
        if let Some(credentials) = &self.credentials {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(credentials.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let ended = |error| DialError::from_io(&error, &format!("asking {self} for {target}"));
        stream.write_all(&request).await.map_err(ended)?;
        stream.flush().await.map_err(ended)?;
        let (mut input, mut scanned, mut interim) = (Vec::with_capacity(1024), 0, 0);
        loop {
            let read = read_response(&mut input, &mut scanned, MOST_HEAD, "CONNECT", |head| (head.len, head.status));
            let (len, status) = match read {
                Ok(Some(head)) => head,
                Ok(None) if stream.read_buf(&mut input).await.map_err(ended)? > 0 => continue,
                Ok(None) => return Err(ended(io::ErrorKind::UnexpectedEof.into())),
                Err(_) => {
                    let what = format!("the answer of {self} to CONNECT {target} is not HTTP");
                    return Err(DialError::new(DialFault::Malformed, what));
                }
            };
            input.drain(..len);
            scanned = 0;
            let kind = match status {
                200..300 => return Ok(input),
                // Interim answers (RFC 9110 §15.2) are skipped; 101 is not an interim answer.
                100 | 102..200 if interim < MAX_INTERIM => {
                    interim += 1;
                    continue;
                }
                100 | 102..200 => DialFault::Malformed,
                407 => return Err(self.wants_credentials()),
                504 => DialFault::TimedOut,
                508 => DialFault::Loop,
                _ => DialFault::Declined,
            };
            return Err(DialError::new(kind, format!("{self} answers CONNECT {target} with status {status}")));
        }
    }
}

impl fmt::Display for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the upstream proxy {}://{}:{}", self.at.scheme(), self.at.host(), self.at.port())
    }
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamProxy({self})")
    }
}

const MOST_HEAD: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    fn parent(url: &str) -> UpstreamProxy {
        let settings = Settings::parse("test.yaml", &format!("egress: {{ upstream_proxy: '{url}' }}")).unwrap();
        UpstreamProxy::new(settings.egress.upstream_proxy.as_ref().unwrap())
    }

    /// The request to an upstream proxy that answers with `answer`, and the result.
    async fn asked(url: &str, answer: &[u8]) -> (String, Result<(), DialError>, Vec<u8>) {
        let (mut ours, mut its) = tokio::io::duplex(64 * 1024);
        its.write_all(answer).await.unwrap();
        let authority = Authority::from_url("https://a.example").unwrap();
        let connected = parent(url).connect(&mut ours, &authority, "1.1 me").await;
        drop(its.shutdown().await);
        let (connected, mut rest) = match connected {
            Ok(ahead) => (Ok(()), ahead),
            Err(error) => (Err(error), Vec::new()),
        };
        if connected.is_ok() {
            ours.read_to_end(&mut rest).await.unwrap();
        }
        drop(ours);
        let mut request = String::new();
        its.read_to_string(&mut request).await.unwrap();
        (request, connected, rest)
    }

    #[tokio::test]
    async fn connect_sends_host_port_and_credentials() {
        let (request, connected, rest) =
            asked("http://u%40x:p%3Aw@p.example:3128", b"HTTP/1.1 200 OK\r\n\r\nafter").await;
        assert!(connected.is_ok());
        assert_eq!(rest, b"after", "bytes after the answer are the origin's");
        let credentials = BASE64_STANDARD.encode("u@x:p:w");
        assert_eq!(
            request,
            format!(
                "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nVia: 1.1 me\r\n\
                 Proxy-Authorization: Basic {credentials}\r\n\r\n"
            )
        );
    }

    #[tokio::test]
    async fn connect_errors_have_a_kind_and_hide_the_credentials() {
        for (answer, kind) in [
            ("HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\n\r\n", DialFault::Credentials),
            ("HTTP/1.1 403 No\r\n\r\n", DialFault::Declined),
            ("HTTP/1.1 502 No\r\n\r\n", DialFault::Declined),
            ("HTTP/1.1 504 Slow\r\n\r\n", DialFault::TimedOut),
            ("HTTP/1.1 508 Loop\r\n\r\n", DialFault::Loop),
            ("HTTP/1.1 101 Other\r\n\r\n", DialFault::Declined),
            ("SSH-2.0-x\r\n", DialFault::Malformed),
            ("HTTP/1.1 2x0 OK\r\n\r\n", DialFault::Malformed),
            ("HTTP/1.1 200 OK\r\n: x\r\n\r\n", DialFault::Malformed),
        ] {
            let (_, connected, _) = asked("http://user:secret@p.example:3128", answer.as_bytes()).await;
            let error = connected.unwrap_err();
            assert_eq!(error.kind, kind, "{answer:?}: {error}");
            let told = format!("{error} {error:?} {:?}", parent("http://user:secret@p.example:3128"));
            assert!(
                told.contains("http://p.example:3128") && !told.contains("secret") && !told.contains("user"),
                "{told}"
            );
        }
        let endless = [b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'a'; MOST_HEAD]].concat();
        assert_eq!(asked("http://p.example", &endless).await.1.unwrap_err().kind, DialFault::Malformed);
    }

    /// A stream that returns an answer and counts the reads.
    struct Reads {
        answer: Vec<u8>,
        count: usize,
    }

    impl AsyncRead for Reads {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.count += 1;
            let n = self.answer.len().min(buf.remaining());
            buf.put_slice(&self.answer.drain(..n).collect::<Vec<_>>());
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Reads {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn interim_answer_to_connect_is_skipped() {
        let (_, connected, _) = asked("http://p.example", b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.0 200 OK\r\n\r\n").await;
        assert!(connected.is_ok());
    }

    #[tokio::test]
    async fn connect_fails_after_more_than_32_interim_answers() {
        for (count, expected) in [(32, None), (33, Some(DialFault::Malformed))] {
            let answer = "HTTP/1.1 103 Early\r\n\r\n".repeat(count) + "HTTP/1.1 200 OK\r\n\r\n";
            let (_, connected, _) = asked("http://p.example", answer.as_bytes()).await;
            assert_eq!(connected.err().map(|error| error.kind), expected, "{count}");
        }
    }

    /// A system call for each byte of an answer would be hundreds of calls for each connection.
    #[tokio::test]
    async fn connect_answer_that_arrives_at_once_is_read_at_once() {
        let answer = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\nafter", "x".repeat(400));
        let mut reads = Reads { answer: answer.into_bytes(), count: 0 };
        let authority = Authority::from_url("https://a.example").unwrap();
        let ahead = parent("http://p.example:3128").connect(&mut reads, &authority, "1.1 me").await.unwrap();
        assert_eq!((ahead.as_slice(), reads.count), (&b"after"[..], 1));
    }
}
