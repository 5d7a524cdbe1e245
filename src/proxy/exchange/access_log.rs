//! The access log: one line a request.

use crate::gate::Reported;
use std::net::IpAddr;
use tokio::time::Instant;

/// What there is to say of a request.
pub struct Record<'a> {
    pub client: IpAddr,
    /// `None`, and so the URL: it could not be read so far.
    pub method: Option<&'a str>,
    pub url: Option<&'a str>,
    /// 0: nothing was answered.
    pub status: u16,
    pub began: Instant,
    pub refused: Option<&'static str>,
    pub reported: Option<&'a Reported>,
    pub error: Option<String>,
}

impl Record<'_> {
    pub fn write(&self) {
        tracing::info!(
            target: "access",
            client = %self.client,
            method = self.method,
            url = self.url,
            status = self.status,
            ms = self.began.elapsed().as_millis() as u64,
            refusal = self.refused,
            reported = self.reported.map(tracing::field::display),
            error = self.error,
        );
    }
}
