//! `identity.signature`: the key that signs requests, and where its public half is published.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::text::{self, read_from_text};
use crate::config::read::error::Complaint;

/// The settings of Web Bot Auth. Without a key, nothing is signed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SignatureSettings {
    /// An Ed25519 key, PEM.
    #[serde(default, deserialize_with = "text::some")]
    pub key: Option<PathBuf>,
    /// Further keys in the directory: the previous or the next one.
    #[serde(deserialize_with = "text::many")]
    pub other_keys: Vec<PathBuf>,
    pub agent: Option<Agent>,
    pub form: AgentForm,
    pub when: SignWhen,
    /// Time from `created` to `expires` of a signature.
    pub validity: Duration,
    /// Whether each request gets a separate signature, with a nonce.
    pub nonce: bool,
}

/// The identity for signatures: an https URL that leads verifiers to the directory of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent(String);

impl Agent {
    /// # Errors
    /// The text is not an https URL, or contains a user, a query or a fragment.
    pub fn parse(text: &str) -> Result<Self, Complaint> {
        let fault = |what: &str| Complaint::new(format!("`{text}` {what}"), AGENT_FORMS);
        let url = Url::parse(text).map_err(|_| fault("is not a URL"))?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        if url.scheme() != "https" {
            return Err(fault("is not an https URL"));
        }
        if !is_plain || url.query().is_some() || url.fragment().is_some() {
            return Err(fault("contains more than an origin and a path"));
        }
        // An origin is written without a final slash (RFC 6454 §6.2).
        let is_origin = url.path() == "/";
        let mut url = String::from(url);
        url.truncate(url.len() - usize::from(is_origin));
        Ok(Self(url))
    }

    /// The URL as sent in `Signature-Agent`: `https://bot.example`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The authority of the URL: `bot.example`, or `bot.example:8443`.
    pub fn authority(&self) -> &str {
        self.0.split('/').nth(2).unwrap_or_default()
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

read_from_text! {
    Agent, "a URL", AGENT_FORMS, Self::parse;
}

/// The form of `Signature-Agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AgentForm {
    /// A dictionary with one member, as in the drafts since October 2025.
    Dictionary,
    /// A bare string, as in earlier drafts.
    String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SignWhen {
    Always,
    /// Only for authorities that have requested it with `Accept-Signature`.
    OnChallenge,
}

const AGENT_FORMS: &str = "write `https://bot.example`, or the URL of the directory itself: \
                           `https://bot.example/.well-known/http-message-signatures-directory`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_an_origin_or_the_url_of_a_directory() {
        for (written, sent, authority) in [
            ("https://bot.example", "https://bot.example", "bot.example"),
            ("https://Bot.example:443/", "https://bot.example", "bot.example"),
            ("https://bot.example:8443/keys.json", "https://bot.example:8443/keys.json", "bot.example:8443"),
        ] {
            let agent = Agent::parse(written).unwrap();
            assert_eq!((agent.as_str(), agent.authority()), (sent, authority), "{written}");
        }
        for wrong in
            ["http://bot.example", "bot.example", "https://u@bot.example", "https://bot.example/?x", "https://a/#b"]
        {
            assert!(Agent::parse(wrong).is_err(), "{wrong}");
        }
    }
}
