//! Parses requests for signatures, which origins send in `Accept-Signature` (RFC 9421 §5).

use super::LABEL;
use crate::config::AgentForm;
use sfv::{Dictionary, Item, Key, KeyRef, ListEntry, Parser};

/// A requested signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureRequest {
    /// The label of the signature (§5.2).
    pub(super) label: Key,
    /// A nonce to include in one signature only.
    pub(super) nonce: Option<String>,
}

impl Default for SignatureRequest {
    fn default() -> Self {
        Self { label: KeyRef::from_str(LABEL).expect("the label is a valid key").to_owned(), nonce: None }
    }
}

impl SignatureRequest {
    /// Returns the first supported request in the field. `id`: the name of our key. `None`: no request is supported, or the field is
    /// malformed.
    pub(super) fn parse(value: &[u8], id: &str, form: AgentForm) -> Option<Self> {
        if value.len() > MAX_BYTES {
            return None;
        }
        let all: Dictionary = Parser::new(value).parse().ok()?;
        all.iter().find_map(|(label, wanted)| Self::of(label, wanted, id, form))
    }

    fn of(label: &Key, wanted: &ListEntry, id: &str, form: AgentForm) -> Option<Self> {
        let ListEntry::InnerList(wanted) = wanted else { return None };
        // Accepts only the component parameters that our own signatures use; others would change the component's value.
        let is_ours = |item: &Item| {
            let mut parameters = item.params.iter();
            match (item.bare_item.as_string().map(|name| name.as_str()), parameters.next(), parameters.next()) {
                (Some("@authority" | "signature-agent"), None, _) => true,
                (Some("signature-agent"), Some((name, member)), None) => {
                    let is_label = member.as_string().is_some_and(|member| member.as_str() == label.as_str());
                    form == AgentForm::Dictionary && name.as_str() == "key" && is_label
                }
                _ => false,
            }
        };
        let are_ours = wanted.items.iter().all(is_ours);
        // An origin may request a parameter without a value. Then any value meets the request.
        let text = |name: &str| wanted.params.get(name).and_then(|value| value.as_string()).map(|text| text.as_str());
        let fits = |name: &str, ours: &str| text(name).is_none_or(|asked| asked == ours);
        let is_ours = are_ours && fits("tag", TAG) && fits("alg", "ed25519") && fits("keyid", id);
        is_ours.then(|| Self { label: label.clone(), nonce: text("nonce").map(str::to_owned) })
    }
}

/// The field in which an origin requests a signature.
pub const FIELD: &str = "accept-signature";
pub(super) const TAG: &str = "web-bot-auth";
/// Maximum length of the field in bytes.
const MAX_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn label(value: &str) -> Option<String> {
        SignatureRequest::parse(value.as_bytes(), "me", AgentForm::Dictionary)
            .map(|wanted| wanted.label.as_str().to_owned())
    }

    #[test]
    fn a_supported_signature_gets_the_requested_label() {
        for (asked, given) in [
            (r#"sig9=("@authority");tag="web-bot-auth""#, Some("sig9")),
            (r#"a=("@authority" "signature-agent";key="a");created;expires;keyid="me";alg="ed25519""#, Some("a")),
            ("a=()", Some("a")),
            (r#"a=("@method"), b=("@authority")"#, Some("b")),
            (r#"a=("@authority");tag="other""#, None),
            (r#"a=("@authority");alg="rsa-pss-sha512""#, None),
            (r#"a=("@authority");keyid="another""#, None),
            (r#"a=("@authority" "content-digest")"#, None),
            (r#"a=("@authority" "@path")"#, None),
            (r#"a=("@authority";req)"#, None),
            (r#"a=("signature-agent";key="b")"#, None),
            (r#"a=("signature-agent";bs), b=("signature-agent")"#, Some("b")),
            (r#"a="@authority""#, None),
            ("", None),
            ("a=(", None),
            ("\u{fc}", None),
        ] {
            assert_eq!(label(asked).as_deref(), given, "{asked}");
        }
        let as_member = br#"a=("signature-agent";key="a")"#;
        assert_eq!(SignatureRequest::parse(as_member, "me", AgentForm::String), None, "a string has no members");
        assert_eq!(label(&format!("a=(){}", " ".repeat(MAX_BYTES))), None, "too long");
    }

    #[test]
    fn a_nonce_is_repeated() {
        let wanted =
            SignatureRequest::parse(br#"a=("@authority");nonce="xyz";tag="web-bot-auth""#, "me", AgentForm::String)
                .unwrap();
        assert_eq!(wanted.nonce.as_deref(), Some("xyz"));
    }
}
