//! What pingora wants to know of a stream that it is lent.

use super::{Downstream, Io};
use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

#[async_trait]
impl Shutdown for Downstream {
    async fn shutdown(&mut self) {
        // The client may be gone already; there is nobody left to tell.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for Downstream {
    fn id(&self) -> UniqueIDType {
        match &self.io {
            Io::Tcp(tcp) => tcp.as_raw_fd(),
            Io::Tls(tls) => tls.get_ref().0.id(),
        }
    }
}

impl Ssl for Downstream {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        None
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        match &self.io {
            Io::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2") => Some(ALPN::H2),
            Io::Tls(_) | Io::Tcp(_) => None,
        }
    }
}

impl GetTimingDigest for Downstream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Downstream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.digest.clone()
    }
}

impl GetSocketDigest for Downstream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::new(SocketDigest::from_raw_fd(self.id())))
    }
}

impl Peek for Downstream {}

impl std::fmt::Debug for Downstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Downstream").field("client", &self.client).finish_non_exhaustive()
    }
}
