//! The defaults: what the file we ship says.

use std::sync::LazyLock;

use crate::config::read::error::{ConfigPlace, Faults};
use crate::config::read::tree::YamlNode;

/// The file we ship, in which every key stands with its default and what it does.
pub const DEFAULTS: &str = include_str!("../../../conf/politely.yaml");

/// The same as a tree, written nowhere.
pub(in crate::config) fn defaults() -> &'static YamlNode {
    static TREE: LazyLock<YamlNode> = LazyLock::new(|| {
        let tree = YamlNode::read(DEFAULTS, "", &|_| ConfigPlace::Unwritten, &mut Faults::default());
        tree.expect("the file of the defaults is YAML, as a test holds")
    });
    &TREE
}
