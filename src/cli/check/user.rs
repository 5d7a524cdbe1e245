//! The terms of each user of `access.users`.

use super::differences::cut;
use crate::cli::CommandError;
use crate::config::units::show_duration;
use crate::config::{Settings, User};
use serde_json::{Value, json};

/// The settings that apply to a user's requests, and the place in the configuration where the user is defined.
pub(super) struct UserTerms {
    name: String,
    place: String,
    /// Keys and values. `null`: not set. An empty list of hosts or methods: any.
    all: Vec<(&'static str, Value)>,
}

impl UserTerms {
    /// The terms that are set, each preceded by `joint`. Empty lists of hosts and methods are included, as `any host` and `any method`.
    pub fn text(&self, joint: &str) -> String {
        let any = |key: &str| match key {
            "egress.hosts" => Some("any host".to_owned()),
            "egress.methods" => Some("any method".to_owned()),
            _ => None,
        };
        let said =
            |(key, value): &(&str, Value)| Some(format!("{joint}{key}: {}", format_term(value).or_else(|| any(key))?));
        let said = self.all.iter().filter_map(said);
        said.collect::<String>()
    }

    pub fn json(&self) -> Value {
        let mut all = json!({ "name": self.name, "place": self.place });
        self.all.iter().for_each(|(key, value)| all[key] = value.clone());
        all
    }
}

/// Formats one line for each user, up to [`MOST`] users.
pub(super) fn lines(settings: &Settings, places: &[String]) -> Vec<String> {
    let more = settings.access.users.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("user: {more} more: `--user NAME` shows one"));
    let line =
        |user: UserTerms| format!("user {} ({}){}", user.name, user.place, user.text("; ").replacen(';', ":", 1));
    all(settings, places).take(MOST).map(line).chain(more).collect()
}

/// The terms of all users. `places`: where each user is defined, in the order of `access.users`.
pub(super) fn all(settings: &Settings, places: &[String]) -> impl Iterator<Item = UserTerms> {
    let shown = settings.shown();
    let users = settings.access.users.iter().zip(places).enumerate();
    users.map(move |(index, (user, place))| {
        let hosts = shown["access"]["users"][index]["hosts"].clone();
        UserTerms { name: user.name.as_ref().to_owned(), place: place.clone(), all: terms(settings, user, hosts) }
    })
}

/// The terms of one user, as `--user` shows them.
///
/// # Errors
/// There is no such user.
pub(super) fn find_user(settings: &Settings, places: &[String], name: &str) -> Result<UserTerms, CommandError> {
    all(settings, places).find(|user| user.name == name).ok_or_else(|| unknown(name))
}

pub(in crate::cli) fn unknown(name: &str) -> CommandError {
    CommandError::usage(format!("there is no user `{name}` in access.users"), "`politely check` lists the users")
}

/// Collects the terms of a user. `hosts`: the user's overrides, as written.
fn terms(settings: &Settings, user: &User, hosts: Value) -> Vec<(&'static str, Value)> {
    let identity = &settings.identity;
    let tokens: Vec<_> = or(&user.product_tokens, &identity.product_tokens).iter().map(AsRef::<str>::as_ref).collect();
    let any = &settings.hosts_of(Some(user)).any().rules;
    let purposes: Vec<_> = any.purposes().iter().map(AsRef::<str>::as_ref).collect();
    let (own, all) = (&user.listed, &settings.listed);
    let listed: Vec<_> = or(&own.hosts, &all.hosts).iter().map(ToString::to_string).collect();
    vec![
        ("password", user.password.is_some().into()),
        ("certificate", json!(user.certificate.as_ref().map(AsRef::as_ref))),
        ("egress.hosts", json!(listed)),
        ("egress.methods", json!(or(&own.methods, &all.methods))),
        ("product_tokens", json!(tokens)),
        ("user_agent", json!(settings.user_agent(Some(user)))),
        ("purpose", json!(purposes)),
        ("crawl_delay", json!(any.crawl_delay.map(show_duration))),
        ("budget", json!(user.budget.map(|budget| budget.to_string()))),
        ("max_connections", json!(user.max_connections)),
        ("max_waiting", json!(user.max_waiting)),
        ("hosts", hosts),
    ]
}

/// The user's list, or everybody's if the user's is empty.
fn or<'a, T>(own: &'a [T], all: &'a [T]) -> &'a [T] {
    if own.is_empty() { all } else { own }
}

/// Formats a value. `None`: the term is not set.
fn format_term(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some("yes".to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(items.iter().filter_map(format_term).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) if entries.is_empty() => None,
        other => Some(cut(&other.to_string())),
    }
}

const MOST: usize = 100;
