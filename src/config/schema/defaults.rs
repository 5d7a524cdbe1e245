//! The defaults: the values in the shipped file.

use std::sync::LazyLock;

use crate::config::read::error::{ConfigPlace, Faults};
use crate::config::read::tree::YamlNode;

/// The shipped file, with every key, its default and its explanation.
pub const DEFAULTS: &str = include_str!("../../../conf/politely.yaml");

/// [`DEFAULTS`] as a tree whose nodes have no place in a file.
pub(in crate::config) fn defaults() -> &'static YamlNode {
    static TREE: LazyLock<YamlNode> = LazyLock::new(|| {
        let tree = YamlNode::read(DEFAULTS, "", &|_| ConfigPlace::Unwritten, &mut Faults::default());
        tree.expect("the file of the defaults is valid YAML, as a test checks")
    });
    &TREE
}
