//! Lists the settings that are less polite than the defaults, and the settings that come from a source other than the first file.

use crate::config::{Differences, WrittenKey};

/// Formats the differences, one line each; at most [`MOST`] of each kind.
pub(super) fn lines(differences: &Differences) -> Vec<String> {
    let overrides = differences.overrides.iter();
    let overrides =
        overrides.map(|it| format!("{} for {}{} ({})", cut(&it.set.setting), it.set.scope(), it.set.why(), it.place));
    let replaced = differences.replaced.iter().map(|it| {
        let by = if it.by.key == it.before.key { String::new() } else { format!("{}: ", it.by.key) };
        let more = if it.more == 0 { String::new() } else { format!(" and {} more", it.more) };
        format!("{}: {}{more} by {by}{}", it.before.key, written(&it.before), written(&it.by))
    });
    let set = differences.set.iter().map(|it| format!("{}: {}", it.key, written(it)));
    bounded("override", overrides).chain(bounded("replaced", replaced)).chain(bounded("set", set)).collect()
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

/// Truncates a value for display, as a list may be long.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_OF_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

const MOST: usize = 50;
const MOST_OF_VALUE: usize = 100;
