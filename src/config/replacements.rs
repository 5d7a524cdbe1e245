//! Lists the values that a file, a variable or an argument replaces: values of the same key in an earlier source, or values that another
//! file sets for more hosts or users.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::comparison::plain;
use super::display::json;
use super::hosts::{end, wider};
use super::read::error::ConfigPlace;
use super::read::tree::{Value, YamlNode};

/// A value, and the keys that lead to it.
#[derive(Clone)]
pub(super) struct WrittenNode<'a> {
    pub path: Vec<&'a str>,
    pub node: &'a YamlNode,
}

/// A key and its value without secrets, and the file and line, variable or argument that sets it.
#[derive(Serialize)]
pub struct WrittenKey {
    pub key: String,
    pub value: serde_json::Value,
    pub place: String,
}

/// A written value that is not in force, or not for all of its hosts and users, and the value in its place.
#[derive(Serialize)]
pub struct Replaced<K = WrittenKey> {
    #[serde(flatten)]
    pub before: K,
    /// Number of further values that `by` replaces: values of the same key for other hosts.
    pub more: usize,
    pub by: K,
}

impl<K> Replaced<K> {
    fn new(before: K, by: K) -> Self {
        Self { before, more: 0, by }
    }

    pub(super) fn map<L>(self, shown: impl Fn(K) -> L) -> Replaced<L> {
        Replaced { before: shown(self.before), more: self.more, by: shown(self.by) }
    }
}

/// The replaced values, sorted by the place of the new value; each written value at most once. `stages`: as in
/// [`Layers`](super::layers::Layers).
pub(super) fn replaced(stages: &[YamlNode]) -> Vec<Replaced<WrittenNode<'_>>> {
    let mut all = Vec::new();
    for stages in stages.windows(2) {
        compare(&mut Vec::new(), &stages[0], &stages[1], &mut all);
    }
    stages.last().into_iter().for_each(|root| narrowed(root, &mut all));
    all.sort_by(|a, b| a.by.node.at.cmp(&b.by.node.at));
    all
}

/// Collects the values of `before` that differ in `after` or are missing there. A list is one value, but added users are not a difference.
fn compare<'a>(
    path: &mut Vec<&'a str>,
    before: &'a YamlNode,
    after: &'a YamlNode,
    into: &mut Vec<Replaced<WrittenNode<'a>>>,
) {
    let is_kept = match (&before.value, &after.value) {
        (Value::Map(entries), Value::Map(others)) => {
            for (key, entry) in &**entries {
                path.push(key);
                // The key is missing if a variable has replaced the whole section.
                let other = others.get(key).map_or(after, |other| &other.1);
                compare(path, &entry.1, other, into);
                path.pop();
            }
            return;
        }
        (Value::List(items), Value::List(others)) if path.last() == Some(&"users") => {
            items.len() <= others.len() && items.iter().zip(&**others).all(|(one, other)| is_same(one, other))
        }
        (Value::Null, _) => true,
        _ => is_same(before, after),
    };
    if !is_kept {
        let found = |node| WrittenNode { path: path.clone(), node };
        into.push(Replaced::new(found(before), found(after)));
    }
}

/// Collects the values for some hosts or users that differ from the value that another file sets for all, or for a pattern that covers
/// these hosts.
fn narrowed<'a>(root: &'a YamlNode, into: &mut Vec<Replaced<WrittenNode<'a>>>) {
    let is_other = |before: &YamlNode, by: &YamlNode| is_elsewhere(before, by) && !is_same(before, by);
    let one = |before: WrittenNode<'a>, by: &WrittenNode<'a>| {
        is_other(before.node, by.node).then(|| Replaced::new(before, by.clone()))
    };
    let general = Entries::new(vec!["hosts"], root.below("hosts"));
    let of_all = general.leaves();
    // `own`: for a user's entry, the end of its own pattern.
    let of_leaf = |(pattern, keys, by): &PatternLeaf<'a>, own: Option<&str>| {
        let before = own.into_iter().chain(wider(end(pattern))).find_map(|end| general.get(end, keys));
        before.or_else(|| for_all(root, keys)).and_then(|before| one(before, by))
    };
    into.extend(of_all.iter().filter_map(|leaf| of_leaf(leaf, None)));
    // The entries that a wider pattern covers, by configuration key and the wider pattern's suffix (`.example` for `*.example`).
    let mut covered = HashMap::<_, Vec<_>>::new();
    for (pattern, keys, node) in &of_all {
        wider(end(pattern)).for_each(|end| covered.entry((keys, end)).or_default().push((*pattern, node)));
    }
    let users = root.below("access").and_then(|access| access.below("users"));
    for user in users.into_iter().flat_map(YamlNode::items) {
        let path = ["access", "users", user.below("name").and_then(YamlNode::text).unwrap_or_default()];
        for key in ["product_tokens", "user_agent"] {
            if let (Some(before), Some(node)) = (for_all(root, &[key]), user.under(&[key])) {
                into.extend(one(before, &WrittenNode { path: [&path[..], &[key]].concat(), node }));
            }
        }
        let own = Entries::new([&path[..], &["hosts"]].concat(), user.below("hosts"));
        let leaves = own.leaves();
        into.extend(leaves.iter().filter_map(|leaf| of_leaf(leaf, Some(end(leaf.0)))));
        // A user's pattern also overrides entries for fewer hosts. Lists one of these entries and counts the others, as every user may
        // override all of them.
        for (own_pattern, keys, _) in &leaves {
            let mut found: Option<Replaced<WrittenNode<'a>>> = None;
            for (pattern, before) in covered.get(&(keys, end(own_pattern))).into_iter().flatten() {
                let by = wider(end(pattern)).find_map(|wider| Some((wider, own.get(wider, keys)?)));
                let by = by.filter(|(wider, by)| *wider == end(own_pattern) && is_other(before.node, by.node));
                match (&mut found, by) {
                    (None, Some((_, by))) => found = Some(Replaced::new((*before).clone(), by)),
                    (Some(first), Some(_)) => first.more += 1,
                    (_, None) => {}
                }
            }
            into.extend(found);
        }
    }
}

/// A pattern, and a key in its entry with its value.
type PatternLeaf<'a> = (&'a str, Vec<&'a str>, WrittenNode<'a>);

/// The entries of a `hosts` map, by the end of their pattern, and the keys that lead to the map.
struct Entries<'a> {
    path: Vec<&'a str>,
    all: BTreeMap<&'a str, (&'a str, &'a YamlNode)>,
}

impl<'a> Entries<'a> {
    fn new(path: Vec<&'a str>, hosts: Option<&'a YamlNode>) -> Self {
        let named = hosts.into_iter().flat_map(YamlNode::named);
        Self { path, all: named.map(|(pattern, entry)| (end(pattern), (pattern, entry))).collect() }
    }

    /// Each pattern with each key in its entry.
    fn leaves(&self) -> Vec<PatternLeaf<'a>> {
        let mut all = Vec::new();
        for (pattern, entry) in self.all.values() {
            for (key, node) in entry.named() {
                let below = node.named().map(|(name, node)| (vec![key, name], node));
                let keys = if key == "usage" { below.collect() } else { vec![(vec![key], node)] };
                for (keys, node) in keys {
                    let path = [&self.path[..], &[pattern], &keys].concat();
                    all.push((*pattern, keys, WrittenNode { path, node }));
                }
            }
        }
        all
    }

    fn get(&self, end: &str, keys: &[&'a str]) -> Option<WrittenNode<'a>> {
        let (pattern, entry) = self.all.get(end)?;
        let node = entry.under(keys)?;
        Some(WrittenNode { path: [&self.path[..], &[pattern], keys].concat(), node })
    }
}

/// The value that applies to all hosts and users, of the setting that `keys` name in an entry.
fn for_all<'a>(root: &'a YamlNode, keys: &[&'a str]) -> Option<WrittenNode<'a>> {
    let path = match keys {
        ["usage", ..] => keys.to_vec(),
        ["adaptive" | "breaker" | "budget" | "min_revisit"] => [&["pace"], keys].concat(),
        ["product_tokens" | "purpose" | "user_agent"] => [&["identity"], keys].concat(),
        ["intercept"] => vec!["intercept", "default"],
        _ => return None,
    };
    Some(WrittenNode { node: root.under(&path)?, path })
}

/// Whether `by` comes from another file than `before`, or from a variable or argument. Values of the first file never count as
/// replacements.
fn is_elsewhere(before: &YamlNode, by: &YamlNode) -> bool {
    match (&before.at, &by.at) {
        (_, ConfigPlace::Line { file: 0, .. }) => false,
        (ConfigPlace::Line { file, .. }, ConfigPlace::Line { file: other, .. }) => file != other,
        (before, by) => before != by,
    }
}

/// Whether both are the same node, or have the same value.
pub(super) fn is_same(one: &YamlNode, other: &YamlNode) -> bool {
    one.at == other.at || plain(&json(one)) == plain(&json(other))
}
