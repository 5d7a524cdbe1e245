//! The places at which a configuration names files and directories.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::read::error::ConfigText;
use super::read::tree::YamlNode;

/// The place at which each path is written, as text for messages.
#[derive(Clone, Debug, Default)]
pub struct PathPlaces(HashMap<PathBuf, String>);

/// All places are equal, as settings do not depend on where a value is written.
impl PartialEq for PathPlaces {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl PathPlaces {
    /// The places in the tree `whole`. `base`: the directory that relative paths start from.
    pub(super) fn of(whole: &YamlNode, base: &Path, sources: &[ConfigText]) -> Self {
        let mut places = Self::default();
        places.take(whole, base, sources);
        places
    }

    fn take(&mut self, node: &YamlNode, base: &Path, sources: &[ConfigText]) {
        for (key, below) in node.named() {
            let values = [below].into_iter().chain(below.items()).filter(|_| KEYS.contains(&key));
            for (path, place) in values.filter_map(|value| Some((value.text()?, value.at.shown(sources)?))) {
                self.0.entry(base.join(path)).or_insert(place);
            }
            self.take(below, base, sources);
        }
        node.items().iter().for_each(|item| self.take(item, base, sources));
    }

    /// The place at which this path is written or, if it is not, the nearest directory above it.
    pub fn of_path(&self, path: &Path) -> Option<String> {
        path.ancestors().find_map(|path| self.0.get(path)).cloned()
    }
}

/// Keys that name files or directories. Some of these keys have another meaning in other sections. This is harmless, as their values are
/// never looked up as paths.
const KEYS: [&str; 8] =
    ["access", "ca_file", "certificate", "client_ca", "directory", "key", "other_keys", "token_file"];
