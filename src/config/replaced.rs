//! What a file, a variable or an argument replaces of an earlier one: the same key, or what another file sets for more hosts or users.
//! `politely check` lists both, so that nobody takes back unseen what the first file says.

use serde::Serialize;

use super::changes::{key_path, plain};
use super::read::error::{ConfigPlace, ConfigText};
use super::read::tree::{Value, YamlNode};
use super::shown::{json, without_secrets};

/// A written value that is not in force, or not for all of its hosts and users.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replaced {
    #[serde(flatten)]
    pub before: WrittenKey,
    pub by: WrittenKey,
}

/// A key and its value without secrets, and the file and line, variable or argument that says so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrittenKey {
    pub key: String,
    pub value: serde_json::Value,
    pub place: String,
}

/// `stages`: the first file, and what it is with each further source laid over it. Never empty.
pub(super) fn replaced(stages: &[YamlNode], sources: &[ConfigText]) -> Vec<Replaced> {
    let mut all = Vec::new();
    for stages in stages.windows(2) {
        compare(&mut Vec::new(), &stages[0], &stages[1], &mut all);
    }
    narrowed(&stages[stages.len() - 1], &mut all);
    all.sort_by(|(_, a), (_, b)| a.node.at.cmp(&b.node.at));
    all.into_iter().map(|(before, by)| Replaced { before: before.written(sources), by: by.written(sources) }).collect()
}

/// A value, and the keys that lead to it.
#[derive(Clone)]
struct Found<'a> {
    path: Vec<&'a str>,
    node: &'a YamlNode,
}

impl Found<'_> {
    fn written(self, sources: &[ConfigText]) -> WrittenKey {
        let path = self.path.iter().fold(String::new(), |path, key| key_path(&path, key));
        let key = self.path.last().copied().unwrap_or_default();
        WrittenKey { key: path, value: without_secrets(key, self.node), place: self.node.at.line(sources) }
    }
}

/// The values of `before` that are another in `after`, or gone. A list is one value, but users are added.
fn compare<'a>(
    path: &mut Vec<&'a str>,
    before: &'a YamlNode,
    after: &'a YamlNode,
    into: &mut Vec<(Found<'a>, Found<'a>)>,
) {
    let is_kept = match (&before.value, &after.value) {
        (Value::Map(entries), Value::Map(others)) => {
            for (key, (_, value)) in entries {
                path.push(key);
                // A variable replaces a whole section.
                let other = others.get(key).map_or(after, |(_, other)| other);
                compare(path, value, other, into);
                path.pop();
            }
            return;
        }
        (Value::List(items), Value::List(others)) if path.last() == Some(&"users") => {
            items.len() <= others.len() && items.iter().zip(others).all(|(one, other)| is_same(one, other))
        }
        (Value::Null, _) => true,
        _ => is_same(before, after),
    };
    if !is_kept {
        let found = |node| Found { path: path.clone(), node };
        into.push((found(before), found(after)));
    }
}

/// What `hosts` and users set otherwise than another file does for all, or for a pattern that covers theirs.
fn narrowed<'a>(root: &'a YamlNode, into: &mut Vec<(Found<'a>, Found<'a>)>) {
    let mut put = |before: Option<Found<'a>>, by: Option<Found<'a>>| {
        into.extend(
            before.zip(by).filter(|(before, by)| is_elsewhere(before.node, by.node) && !is_same(before.node, by.node)),
        );
    };
    let general = Entries { path: vec!["hosts"], hosts: root.below("hosts") };
    let of_all = general.leaves();
    for (pattern, keys, by) in &of_all {
        let before = covering(pattern).find_map(|wider| general.get(&wider, keys));
        put(before.or_else(|| for_all(root, keys)), Some(by.clone()));
    }
    let users = root.below("access").and_then(|access| access.below("users"));
    for user in users.into_iter().flat_map(YamlNode::items) {
        let path = vec!["access", "users", user.below("name").and_then(YamlNode::text).unwrap_or_default()];
        for key in ["product_tokens", "user_agent"] {
            let by = user.below(key).map(|node| Found { path: [&path[..], &[key]].concat(), node });
            put(for_all(root, &[key]), by);
        }
        let own = Entries { path: [&path[..], &["hosts"]].concat(), hosts: user.below("hosts") };
        for (pattern, keys, by) in own.leaves() {
            let mut wider = [pattern.to_owned()].into_iter().chain(covering(pattern));
            let before = wider.find_map(|wider| general.get(&wider, &keys));
            put(before.or_else(|| for_all(root, &keys)), Some(by));
        }
        // A user's pattern overrides what is set for fewer hosts, too.
        if own.has_patterns() {
            for (pattern, keys, before) in &of_all {
                put(Some(before.clone()), covering(pattern).find_map(|wider| own.get(&wider, keys)));
            }
        }
    }
}

/// The entries of a `hosts`, and the keys that lead there.
struct Entries<'a> {
    path: Vec<&'a str>,
    hosts: Option<&'a YamlNode>,
}

impl<'a> Entries<'a> {
    fn has_patterns(&self) -> bool {
        self.hosts.into_iter().flat_map(YamlNode::named).any(|(pattern, _)| pattern.starts_with('*'))
    }

    /// Each pattern with each key in it.
    fn leaves(&self) -> Vec<(&'a str, Vec<&'a str>, Found<'a>)> {
        let mut all = Vec::new();
        for (pattern, entry) in self.hosts.into_iter().flat_map(YamlNode::named) {
            for (key, node) in entry.named() {
                let below = node.named().map(|(name, node)| (vec![key, name], node));
                let keys = if key == "usage" { below.collect() } else { vec![(vec![key], node)] };
                for (keys, node) in keys {
                    let path = [&self.path[..], &[pattern], &keys].concat();
                    all.push((pattern, keys, Found { path, node }));
                }
            }
        }
        all
    }

    fn get(&self, pattern: &str, keys: &[&'a str]) -> Option<Found<'a>> {
        let Value::Map(entries) = &self.hosts?.value else { return None };
        let (pattern, (_, entry)) = entries.get_key_value(pattern)?;
        let node = entry.under(keys)?;
        Some(Found { path: [&self.path[..], &[pattern.as_str()], keys].concat(), node })
    }
}

/// The key that sets for all hosts and users what these set for some.
fn for_all<'a>(root: &'a YamlNode, keys: &[&'a str]) -> Option<Found<'a>> {
    let path = match keys {
        ["usage", ..] => keys.to_vec(),
        ["adaptive" | "breaker" | "budget" | "min_revisit"] => [&["pace"], keys].concat(),
        ["product_tokens" | "purpose" | "user_agent"] => [&["identity"], keys].concat(),
        ["intercept"] => vec!["intercept", "default"],
        _ => return None,
    };
    Some(Found { node: root.under(&path)?, path })
}

/// The patterns that match all that this one does, and more; the most specific first.
fn covering(pattern: &str) -> impl Iterator<Item = String> {
    let name = pattern.strip_prefix("*.").unwrap_or(pattern);
    let above = name.match_indices('.').map(|(dot, _)| format!("*{}", &name[dot..])).collect::<Vec<_>>();
    above.into_iter().chain(Some("*".to_owned()).filter(|any| any != pattern))
}

/// Whether another file, or a variable, says it; the first file may say what it likes.
fn is_elsewhere(before: &YamlNode, by: &YamlNode) -> bool {
    match (&before.at, &by.at) {
        (_, ConfigPlace::Line { file: 0, .. }) => false,
        (ConfigPlace::Line { file, .. }, ConfigPlace::Line { file: other, .. }) => file != other,
        (before, by) => before != by,
    }
}

fn is_same(one: &YamlNode, other: &YamlNode) -> bool {
    plain(&json(one)) == plain(&json(other))
}
