//! The defaults: what the file we ship says.

use std::sync::LazyLock;

use crate::config::read::source::{At, YamlNode};

/// The file we ship, in which every key stands with its default and what it does.
pub const DEFAULTS: &str = include_str!("../../../conf/politely.yaml");

/// The same as a tree, written nowhere.
pub(in crate::config) fn defaults() -> &'static YamlNode {
    static TREE: LazyLock<YamlNode> = LazyLock::new(|| {
        let (mut tree, _) = YamlNode::read(DEFAULTS).expect("the file of the defaults is YAML, as a test holds");
        tree.each_value(&mut |node| node.at = At::Unwritten);
        tree
    });
    &TREE
}
