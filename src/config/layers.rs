//! The sources of a configuration (files, variables, arguments), and where each differs from the earlier ones. `politely check` lists the
//! differences, so that nothing overrides the first file unnoticed.

use std::collections::BTreeSet;

use serde::Serialize;

use super::comparison::key_path;
use super::display::without_secrets;
use super::overrides::{OverrideInForce, overrides};
use super::read::error::{ConfigPlace, ConfigText};
use super::read::tree::{Value, YamlNode};
use super::replacements::{Replaced, WrittenKey, WrittenNode, is_same, replaced};
use super::schema::defaults::defaults;
use super::settings::Settings;

/// The sources from which a configuration was loaded.
#[derive(Default)]
pub struct Layers {
    /// The tree of the first file, then the tree after each further source was laid over it: the included files, variables, arguments.
    pub(super) stages: Vec<YamlNode>,
    pub(super) sources: Vec<ConfigText>,
}

/// Settings that are less polite than the defaults, and settings in which other sources differ from the first file.
#[derive(Serialize)]
pub struct Differences {
    pub overrides: Vec<PlacedOverride>,
    pub replaced: Vec<Replaced>,
    /// Other keys, for everybody, that an included file sets and the first file leaves at their defaults.
    pub set: Vec<WrittenKey>,
}

/// An override, and the file and line, variable or argument that sets it.
#[derive(Serialize)]
pub struct PlacedOverride {
    #[serde(flatten)]
    pub set: OverrideInForce,
    pub place: String,
}

impl Differences {
    pub fn is_empty(&self) -> bool {
        self.overrides.is_empty() && self.replaced.is_empty() && self.set.is_empty()
    }
}

impl Layers {
    /// Lists the differences. `settings`: the settings that were loaded from these layers.
    pub fn differences(&self, settings: &Settings) -> Differences {
        let overrides = overrides(&settings.whole.all());
        let replaced = replaced(&self.stages);
        let listed = replaced.iter().map(|it| &it.by.node.at).chain(overrides.iter().map(|set| self.at(&set.path)));
        let listed = listed.collect();
        let mut set = Vec::new();
        if let [first, .., last] = &self.stages[..] {
            added(&mut Vec::new(), Some(first), last, &listed, &mut set);
        }
        set.sort_by(|a, b| a.node.at.cmp(&b.node.at));
        let placed = |set: OverrideInForce| PlacedOverride { place: self.at(&set.path).line(&self.sources), set };
        Differences {
            set: set.into_iter().map(|node| self.written(node)).collect(),
            replaced: replaced.into_iter().map(|it| it.map(|node| self.written(node))).collect(),
            overrides: overrides.into_iter().map(placed).collect(),
        }
    }

    /// The place at which each of `access.users` is written.
    pub fn user_places(&self, settings: &Settings) -> Vec<String> {
        let path = |index: usize| ["access".to_owned(), "users".to_owned(), index.to_string()];
        (0..settings.access.users.len()).map(|index| self.at(&path(index)).line(&self.sources)).collect()
    }

    /// Whether the value in force at this path is from a file, not from a variable or argument.
    pub fn is_of_file(&self, path: &[&str]) -> bool {
        matches!(self.at(path), ConfigPlace::File(_) | ConfigPlace::Line { .. })
    }

    /// The place of the value in force at this path.
    fn at<K: AsRef<str>>(&self, path: &[K]) -> &ConfigPlace {
        let path: Vec<_> = path.iter().map(K::as_ref).collect();
        self.stages.last().map_or(&ConfigPlace::Unwritten, |root| &root.along(&path).at)
    }

    fn written(&self, it: WrittenNode<'_>) -> WrittenKey {
        let path = it.path.iter().fold(String::new(), |path, key| key_path(&path, key));
        let key = it.path.last().copied().unwrap_or_default();
        WrittenKey { key: path, value: without_secrets(key, it.node), place: it.node.at.line(&self.sources) }
    }
}

/// Collects the values in included files that differ from the default, for keys that `first` does not have. `listed`: places to leave out.
fn added<'a>(
    path: &mut Vec<&'a str>,
    first: Option<&YamlNode>,
    node: &'a YamlNode,
    listed: &BTreeSet<&ConfigPlace>,
    into: &mut Vec<WrittenNode<'a>>,
) {
    if let Value::Map(_) = node.value {
        for (key, value) in node.named() {
            path.push(key);
            // `politely check` lists the users separately.
            if path[..] != ["access", "users"] {
                added(path, first.and_then(|first| first.below(key)), value, listed, into);
            }
            path.pop();
        }
        return;
    }
    let is_included = matches!(node.at, ConfigPlace::Line { file, .. } if file > 0);
    let is_default = || defaults().under(path).is_some_and(|default| is_same(default, node));
    if is_included
        && !node.is_null()
        && first.is_none_or(YamlNode::is_null)
        && !listed.contains(&node.at)
        && !is_default()
    {
        into.push(WrittenNode { path: path.clone(), node });
    }
}
