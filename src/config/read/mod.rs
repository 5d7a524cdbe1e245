//! How it is read: YAML and variables to a tree whose nodes know their places, the tree to typed values, faults to text.

pub(super) mod environment;
pub(super) mod error;
mod expected;
pub(super) mod files;
mod key_kind;
mod places;
mod reader;
pub(super) mod sections;
pub(super) mod text;
pub(super) mod tree;
