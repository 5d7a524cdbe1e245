//! What is less polite than the defaults, and what a later source says otherwise than an earlier one.

use crate::config::{Settings, WrittenKey};
use serde_json::{Value, json};

/// Of each kind at most [`MOST`].
pub(super) fn lines(settings: &Settings) -> Vec<String> {
    let overrides = settings.overrides().iter();
    let overrides = overrides.map(|(set, place)| format!("{} for {} ({place})", cut(&set.setting), set.scope()));
    let replaced = settings.replaced().iter().map(|it| {
        let by = if it.by.key == it.before.key { String::new() } else { format!("{}: ", it.by.key) };
        format!("{}: {} by {by}{}", it.before.key, written(&it.before), written(&it.by))
    });
    bounded("override", overrides).chain(bounded("replaced", replaced)).collect()
}

/// All of them, to be added to the object.
pub(super) fn as_json(settings: &Settings, into: &mut Value) {
    let overrides = settings
        .overrides()
        .iter()
        .map(|(set, place)| json!({ "hosts": set.hosts, "user": set.user, "setting": set.setting, "place": place }));
    into["overrides"] = overrides.collect();
    into["replaced"] = json!(settings.replaced());
}

fn bounded(kind: &'static str, all: impl ExactSizeIterator<Item = String>) -> impl Iterator<Item = String> {
    let more = all.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("{kind}: {more} more: `--format json` lists all"));
    all.take(MOST).map(move |line| format!("{kind}: {line}")).chain(more)
}

fn written(it: &WrittenKey) -> String {
    let place = if it.place.is_empty() { "the default" } else { &it.place };
    let value = it.value.as_str().map_or_else(|| it.value.to_string(), str::to_owned);
    format!("{} ({place})", cut(&value))
}

/// A list may be long.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_OF_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

const MOST: usize = 50;
const MOST_OF_VALUE: usize = 100;
