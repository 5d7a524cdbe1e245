//! The directory of keys: a JSON Web Key Set under a well-known path, signed by each of its keys, so that nobody else
//! can publish it as theirs (the draft's §5.5.1 and appendix B.1).

use super::key::SigningKey;
use super::message::{Component, Part, key, number, sign, string};
use crate::config::Agent;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};

/// The keys, and the agent that publishes them.
pub struct Directory {
    agent: Agent,
    keys: Vec<SigningKey>,
    body: String,
    digest: String,
}

/// A document that the agent publishes, such as the directory: header fields and body.
pub struct Published {
    pub fields: Vec<(&'static str, String)>,
    pub body: String,
}

impl Directory {
    /// Makes the directory of these keys, without duplicates. The first key signs requests.
    pub(super) fn new(agent: Agent, all: Vec<SigningKey>) -> Self {
        let mut keys: Vec<SigningKey> = Vec::new();
        for key in all {
            if !keys.iter().any(|known| known.id() == key.id()) {
                keys.push(key);
            }
        }
        let body = json!({ "keys": keys.iter().map(SigningKey::jwk).collect::<Vec<_>>() }).to_string();
        let digest = format!("sha-256=:{}:", BASE64_STANDARD.encode(digest(&SHA256, body.as_bytes())));
        Self { agent, keys, body, digest }
    }

    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The thumbprints of the keys; the first signs requests.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(SigningKey::id)
    }

    pub(super) fn first(&self) -> &SigningKey {
        self.keys.first().expect("there is a key to sign with")
    }

    /// Signs the directory as of `now`, for the agent's authority, whatever host name the request was for.
    pub fn publish(&self, now: SystemTime) -> Published {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (inputs, signatures) = self.sign(now, now + VALIDITY);
        Published {
            fields: vec![
                ("content-type", MEDIA_TYPE.into()),
                ("cache-control", CACHE_CONTROL.into()),
                ("content-digest", self.digest.clone()),
                ("signature-input", inputs),
                ("signature", signatures),
            ],
            body: self.body.clone(),
        }
    }

    fn sign(&self, created: u64, expires: u64) -> (String, String) {
        let components = [
            Component { name: "@authority", part: Part::Request, value: self.agent.authority() },
            Component { name: "content-digest", part: Part::Whole, value: &self.digest },
        ];
        let each = self.keys.iter().enumerate().map(|(index, own)| {
            let label = if index == 0 { LABEL.to_owned() } else { format!("{LABEL}{index}") };
            let parameters = [
                ("created", number(created)),
                ("expires", number(expires)),
                ("keyid", string(own.id()).into()),
                ("tag", string(TAG).into()),
            ];
            sign(own, key(&label), &components, &parameters)
        });
        let (inputs, signatures): (Vec<_>, Vec<_>) = each.unzip();
        (inputs.join(", "), signatures.join(", "))
    }
}

/// The path at which verifiers look for the directory.
pub const PATH: &str = "/.well-known/http-message-signatures-directory";
const MEDIA_TYPE: &str = "application/http-message-signatures-directory+json";
/// Caches may keep using a removed key for this long.
const CACHE_CONTROL: &str = "public, max-age=3600";
const TAG: &str = "http-message-signatures-directory";
const LABEL: &str = "binding";
/// Validity of the directory's signatures in seconds: a week, for servers that redistribute it (appendix C.8).
const VALIDITY: u64 = 7 * 86_400;

#[cfg(test)]
mod tests {
    use super::super::vectors::{DIRECTORY, KEY};
    use super::*;

    fn directory(keys: Vec<SigningKey>) -> Directory {
        Directory::new(Agent::parse("https://signature-agent.test").unwrap(), keys)
    }

    #[test]
    fn directory_equals_the_drafts_example_byte_for_byte() {
        let mut directory = directory(vec![SigningKey::from_pem(KEY).unwrap()]);
        assert!(
            directory.body.contains(r#""kid":"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U""#),
            "{}",
            directory.body
        );
        // The draft's body has its members in a different order.
        directory.digest = format!("sha-256=:{}:", BASE64_STANDARD.encode(digest(&SHA256, DIRECTORY.body.as_bytes())));
        assert_eq!(directory.digest, DIRECTORY.digest);
        let (input, signature) = directory.sign(DIRECTORY.created, DIRECTORY.expires);
        assert_eq!((input.as_str(), signature.as_str()), (DIRECTORY.input, DIRECTORY.signature));
    }

    #[test]
    fn each_key_signs_the_directory_once() {
        let home = tempfile::tempdir().unwrap();
        let other = SigningKey::make(&home.path().join("k")).unwrap();
        let keys = [KEY, KEY].map(|pem| SigningKey::from_pem(pem).unwrap());
        let directory = directory(keys.into_iter().chain([other]).collect());
        assert_eq!(directory.ids().count(), 2);
        let Published { fields, body } = directory.publish(SystemTime::now());
        let field = |name| &fields.iter().find(|(known, _)| *known == name).unwrap().1;
        assert!(field("signature").starts_with("binding=:") && field("signature").contains(", binding1=:"));
        assert!(directory.ids().all(|id| body.contains(id) && field("signature-input").contains(id)));
    }
}
