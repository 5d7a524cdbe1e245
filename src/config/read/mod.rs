//! Reading: YAML and variables into a tree whose nodes know their places, the tree into typed values, faults into text.

pub(super) mod check;
pub(super) mod environment;
pub(super) mod error;
mod expected;
pub(super) mod faults;
pub(super) mod files;
mod places;
pub(super) mod reader;
mod shorthand;
pub(super) mod text;
pub(super) mod tree;
