//! What a refusal goes by, as members of the answer and of what people who watch are shown.

use crate::policy::Refusal;
use serde_json::{Map, Value};
use std::fmt::{self, Display};

/// The value of a member.
#[derive(Clone, Copy)]
pub enum Member<'a> {
    Text(fmt::Arguments<'a>),
    Number(u64),
}

/// Each member, by name.
pub(super) fn each(refusal: &Refusal, put: &mut dyn FnMut(&'static str, Member<'_>)) {
    match refusal {
        Refusal::Disallowed { robots_url, product_tokens, rule } => {
            put("robots_url", Member::Text(format_args!("{robots_url}")));
            put("product_token", Member::Text(format_args!("{}", Joined(product_tokens))));
            if let Some(rule) = rule {
                let kind = if rule.allow { "Allow" } else { "Disallow" };
                put("rule", Member::Text(format_args!("{kind}: {}", rule.pattern)));
                put("line", Member::Number(rule.line.into()));
                rule.matched_path.iter().for_each(|path| put("matched_path", Member::Text(format_args!("{path}"))));
            }
        }
        Refusal::UsageDisallowed { robots_url, product_tokens, purpose, preference } => {
            put("robots_url", Member::Text(format_args!("{robots_url}")));
            put("product_token", Member::Text(format_args!("{}", Joined(product_tokens))));
            put("purpose", Member::Text(format_args!("{purpose}")));
            put("rule", Member::Text(format_args!("{}: {}", preference.key, preference.value)));
            put("line", Member::Number(preference.line.into()));
            preference.matched_path.iter().for_each(|path| put("matched_path", Member::Text(format_args!("{path}"))));
        }
        Refusal::RobotsUnreachable { robots_url, .. } => {
            put("robots_url", Member::Text(format_args!("{robots_url}")));
        }
        Refusal::OperatorDenied { host, pattern, matched_path } => {
            put("rule", Member::Text(format_args!("hosts.{host}.deny: {pattern}")));
            matched_path.iter().for_each(|path| put("matched_path", Member::Text(format_args!("{path}"))));
        }
        Refusal::AmbiguousPath
        | Refusal::CrawlDelay { .. }
        | Refusal::QueueFull { .. }
        | Refusal::ConnectionLimit { .. }
        | Refusal::EgressDenied { .. }
        | Refusal::ClientDenied { .. }
        | Refusal::AuthorityMismatch { .. }
        | Refusal::BadRequest { .. }
        | Refusal::NotAProxyRequest
        | Refusal::HeadTooLarge { .. }
        | Refusal::HeadTimeout { .. }
        | Refusal::Loop
        | Refusal::Draining { .. }
        | Refusal::FleetLost { .. }
        | Refusal::OwnLimit { .. } => {}
    }
}

/// All of them.
pub fn evidence(refusal: &Refusal) -> Map<String, Value> {
    let mut members = Map::new();
    each(refusal, &mut |name, value| {
        let value = match value {
            Member::Text(text) => text.to_string().into(),
            Member::Number(number) => number.into(),
        };
        members.insert(name.into(), value);
    });
    members
}

struct Joined<'a>(&'a [Box<str>]);

impl Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            f.write_str(one)?;
        }
        Ok(())
    }
}
