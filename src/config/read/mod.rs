//! Reads YAML and variables into a tree whose nodes know their places, converts the tree to typed values, and formats faults.

pub(super) mod environment;
pub(super) mod error;
mod expectation;
pub(super) mod files;
mod key_kind;
mod places;
pub(super) mod reader;
pub(super) mod sections;
pub(super) mod text;
pub(super) mod tree;
mod visitor;
