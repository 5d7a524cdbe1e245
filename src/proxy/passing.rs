//! What every request and answer goes through on its way, whoever carries it. Called by `forward` and `upgrade`.

use super::{Shared, fields, respond};
use crate::gate::{Outcome, Permit, Reported};
use crate::policy::Authority;
use crate::upstream::Route;
use http::{Version, header};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};

impl Shared {
    /// The request as the next one on the way is to see it. `received`: the version in which it came.
    pub(super) fn outgoing(&self, request: &mut RequestHeader, authority: &Authority, received: Version) -> Result<()> {
        fields::strip_request(request);
        if request.version != Version::HTTP_2 {
            request.insert_header(header::HOST, authority.host_header())?;
            fields::join_cookies(request)?;
        }
        if let Some(left) = fields::max_forwards(request) {
            request.insert_header(header::MAX_FORWARDS, left.saturating_sub(1).to_string())?;
        }
        if let Some(agent) = &self.settings.load().identity.user_agent {
            request.insert_header(header::USER_AGENT, agent.as_str())?;
        }
        request.append_header(header::VIA, self.via.line(received))?;
        Ok(())
    }

    /// A final answer as the client is to see it; the pace learns from it. `reported`: what would have been.
    pub(super) fn incoming(
        &self,
        response: &mut ResponseHeader,
        permit: &mut Option<Permit>,
        reported: Option<&Reported>,
        route: Option<&Route>,
    ) -> Result<()> {
        fields::check_framing(response)?;
        if let Some(parent) = route.and_then(Route::asks).filter(|_| response.status.as_u16() == 407) {
            return Err(parent.wants_credentials().into());
        }
        if let Some(permit) = permit {
            permit.outcome = Outcome::Success;
        }
        if matches!(response.status.as_u16(), 429 | 503)
            && let Some(mut permit) = permit.take()
        {
            // The host is left alone from now on, not from when the answer has been read.
            permit.outcome = Outcome::Backoff { retry_after: fields::asked_to_wait(response) };
        }
        fields::strip_response(response);
        response.append_header(header::VIA, self.via.line(response.version))?;
        let reported = reported.map(ToString::to_string);
        let unverified = route.is_some_and(Route::is_unverified).then(|| {
            self.counters.unverified();
            UNVERIFIED.to_owned()
        });
        let details: Vec<String> = unverified.into_iter().chain(reported).collect();
        if !details.is_empty() {
            response.append_header("Proxy-Status", respond::proxy_status(None, Some(&details.join("; "))))?;
        }
        Ok(())
    }
}

const UNVERIFIED: &str = "the origin's certificate was not verified, as configured";
