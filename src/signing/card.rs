//! The agent's identity for verifiers: the Signature Agent Card (draft-meunier-webbotauth-registry) and the list of
//! addresses that requests come from (JAFAR, draft-illyes-webbotauth-jafar). Both are built from the configuration.

use super::Published;
use super::directory::PATH as DIRECTORY_PATH;
use crate::config::{Agent, IdentitySettings, Mode, Settings};
use crate::rfc3339;
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use std::time::SystemTime;
use url::Url;

/// Paths below the agent's origin.
pub const CARD_PATH: &str = "/signature-agent-card";
pub const RANGES_PATH: &str = "/client-ranges.json";

/// The URL at which verifiers look for the directory of keys.
pub fn directory_url(agent: &Agent) -> String {
    match agent.as_str().matches('/').count() {
        2 => format!("{agent}{DIRECTORY_PATH}"),
        _ => agent.to_string(),
    }
}

/// The URL of one of the agent's documents.
pub fn document_url(agent: &Agent, path: &str) -> String {
    format!("https://{}{path}", agent.authority())
}

/// The document at this path, if there is one.
pub fn document(settings: &Settings, path: &str, now: SystemTime) -> Option<Published> {
    let agent = settings.identity.signature.agent.as_ref()?;
    let body = match path {
        CARD_PATH => card(settings)?,
        RANGES_PATH => ranges(&settings.identity, now)?,
        _ => return None,
    };
    let mut fields =
        vec![("content-type", "application/json".into()), ("cache-control", "public, max-age=3600".into())];
    if !settings.identity.addresses.is_empty() {
        fields.push(("link", format!("<{}>; rel=\"client-ranges\"", document_url(agent, RANGES_PATH))));
    }
    Some(Published { fields, body: body.to_string() })
}

/// The Signature Agent Card. `None`: no agent is configured.
pub fn card(settings: &Settings) -> Option<Value> {
    let identity = &settings.identity;
    let agent = identity.signature.agent.as_ref()?;
    let mut card = Map::new();
    let mut put = |name: &str, value: Option<Value>| _ = value.map(|value| card.insert(name.into(), value));
    put("client_id", Some(document_url(agent, CARD_PATH).into()));
    let token = identity.product_tokens.first().map(|token| token.as_str());
    put("client_name", token.map(Value::from));
    let contact = Some(identity.contact.as_str()).filter(|contact| !contact.is_empty());
    let page = contact.filter(|it| Url::parse(it).is_ok_and(|url| matches!(url.scheme(), "http" | "https")));
    put("client_uri", page.map(Value::from));
    let address = contact.filter(|_| page.is_none()).map(|it| match it.starts_with("mailto:") {
        true => it.to_owned(),
        false => format!("mailto:{it}"),
    });
    put("contacts", address.or(page.map(str::to_owned)).map(|contact| json!([contact])));
    put("jwks_uri", Some(directory_url(agent).into()));
    let mut of_bots = Map::new();
    let mut put = |name: &str, value: Option<Value>| _ = value.map(|value| of_bots.insert(name.into(), value));
    put("expected-user-agent", identity.user_agent.as_deref().map(Value::from));
    put("rfc9309-product-token", token.map(Value::from));
    put("rfc9309-compliance", Some((settings.mode == Mode::Enforce).into()));
    let purposes: Vec<_> = identity.purpose.iter().map(|purpose| purpose.as_str()).collect();
    put("purpose", Some(purposes.join(", ")).filter(|all| !all.is_empty()).map(Value::from));
    put("rate-control", Some("429 with Retry-After, Crawl-delay in robots.txt".into()));
    let has_ranges = !identity.addresses.is_empty();
    put("ips_uri", has_ranges.then(|| document_url(agent, RANGES_PATH).into()));
    card.insert("web_bot_auth".into(), of_bots.into());
    Some(card.into())
}

/// The list of addresses. `None`: no addresses are configured.
pub fn ranges(identity: &IdentitySettings, now: SystemTime) -> Option<Value> {
    let prefix = |network: &ipnet::IpNet| match network {
        ipnet::IpNet::V4(network) => json!({ "ipv4Prefix": network.to_string() }),
        ipnet::IpNet::V6(network) => json!({ "ipv6Prefix": network.to_string() }),
    };
    let prefixes: Vec<_> = identity.addresses.iter().map(|network| prefix(&network.0)).collect();
    let token = digest(&SHA256, json!(prefixes).to_string().as_bytes());
    (!prefixes.is_empty()).then(|| {
        json!({
            // An earlier version of the draft requires this member, and consumers may still follow that version.
            "formatVersion": "1.0",
            "synctoken": HEXLOWER.encode(&token.as_ref()[..8]),
            "creationTime": rfc3339::seconds(now),
            "prefixes": prefixes,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn settings(yaml: &str) -> Settings {
        let signature = "signature: { key: k.pem, agent: 'https://bot.example' }";
        Settings::parse("", &format!("identity: {{ {yaml}, {signature} }}")).unwrap()
    }

    #[test]
    fn card_contains_only_configured_members() {
        let full = settings(
            "product_tokens: [ExampleBot, Other], contact: 'https://bot.example/about', purpose: [search, train-ai], \
             user_agent: 'Mozilla/5.0 ExampleBot', addresses: [192.0.2.0/24]",
        );
        assert_eq!(
            card(&full).unwrap(),
            json!({
                "client_id": "https://bot.example/signature-agent-card",
                "client_name": "ExampleBot",
                "client_uri": "https://bot.example/about",
                "contacts": ["https://bot.example/about"],
                "jwks_uri": "https://bot.example/.well-known/http-message-signatures-directory",
                "web_bot_auth": {
                    "expected-user-agent": "Mozilla/5.0 ExampleBot",
                    "rfc9309-product-token": "ExampleBot",
                    "rfc9309-compliance": true,
                    "purpose": "search, ai-train",
                    "rate-control": "429 with Retry-After, Crawl-delay in robots.txt",
                    "ips_uri": "https://bot.example/client-ranges.json",
                },
            })
        );
        let least = card(&settings("contact: bot@example.com")).unwrap();
        assert_eq!(least["contacts"], json!(["mailto:bot@example.com"]));
        assert!(least.get("client_uri").is_none() && least.get("client_name").is_none());
        assert!(least["web_bot_auth"].get("ips_uri").is_none() && least["web_bot_auth"].get("purpose").is_none());
        assert_eq!(card(&Settings::parse("", "").unwrap()), None);
    }

    /// The example is from draft-meunier-webbotauth-registry, "Signature Agent Card". The card omits members for which there is no setting.
    #[test]
    fn card_has_the_form_of_the_drafts_example() {
        let example = json!({
            "client_id": "https://example.com/bot",
            "client_name": "Example Bot",
            "client_uri": "https://example.com/bot/about.html",
            "logo_uri": "https://example.com/logo.png",
            "contacts": ["mailto:bot-support@example.com"],
            "jwks_uri": "https://example.com/.well-known/http-message-signatures-directory",
            "web_bot_auth": {
                "expected-user-agent": "Mozilla/5.0 ExampleBot",
                "rfc9309-product-token": "ExampleBot",
                "rfc9309-compliance": false,
                "trigger": "fetcher",
                "purpose": "search",
                "targeted-content": "Cat pictures",
                "rate-control": "429",
                "rate-expectation": "avg=10rps;max=100rps",
                "known-urls": ["/", "/robots.txt", "*.png"],
                "ips_uri": "https://example.com/ips.json",
            },
        });
        for contact in ["https://bot.example/about", "bot@example.com"] {
            let card = card(&settings(&format!(
                "product_tokens: [ExampleBot], contact: '{contact}', purpose: [search, train-ai], \
                 user_agent: 'Mozilla/5.0 ExampleBot', addresses: [192.0.2.0/24]"
            )));
            is_of_form(&card.unwrap(), &example);
        }
    }

    fn is_of_form(value: &Value, example: &Value) {
        assert_eq!(std::mem::discriminant(value), std::mem::discriminant(example), "{value} {example}");
        for (name, member) in value.as_object().into_iter().flatten() {
            is_of_form(member, example.get(name).unwrap_or_else(|| panic!("the draft's example has no member {name}")));
        }
        for item in value.as_array().into_iter().flatten() {
            is_of_form(item, &example[0]);
        }
        if let (Some(value), Some(example)) = (value.as_str(), example.as_str()) {
            assert_eq!(Url::parse(value).is_ok(), Url::parse(example).is_ok(), "{value} {example}");
        }
    }

    /// The draft's first example, compared member by member.
    #[test]
    fn address_list_matches_the_drafts_example() {
        let identity = settings("addresses: [66.249.64.0/20, '2001:4860:4000::/36', 192.0.2.7]").identity;
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_755_268_200);
        let mut list = ranges(&identity, now).unwrap();
        let token = list.as_object_mut().unwrap().remove("synctoken").unwrap();
        assert_eq!(
            list,
            json!({
                "formatVersion": "1.0",
                "creationTime": "2025-08-15T14:30:00Z",
                "prefixes": [
                    { "ipv4Prefix": "66.249.64.0/20" },
                    { "ipv6Prefix": "2001:4860:4000::/36" },
                    { "ipv4Prefix": "192.0.2.7/32" },
                ],
            })
        );
        let other = settings("addresses: [66.249.64.0/20]").identity;
        assert_ne!(ranges(&other, now).unwrap()["synctoken"], token);
        assert_eq!(ranges(&settings("purpose: []").identity, now), None);
    }
}
