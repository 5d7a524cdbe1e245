//! Reads the tags of an HTML page. Pure.

use html5gum::{Emitter, ForwardingEmitter};

/// A start tag, as far as it has been read.
#[derive(Default)]
pub(super) struct OpenTag {
    pub name: Vec<u8>,
    values: [Option<Vec<u8>>; ATTRIBUTES.len()],
    /// Index of the attribute whose value may follow.
    at: Option<usize>,
}

impl OpenTag {
    pub fn begin(&mut self, name: &[u8]) {
        name.clone_into(&mut self.name);
        (self.values, self.at) = Default::default();
    }

    /// Begins an attribute. The first of several with the same name counts.
    pub fn attribute(&mut self, name: &[u8]) {
        let known = ATTRIBUTES.iter().position(|known| known.as_bytes() == name);
        self.at = known.filter(|at| self.values[*at].is_none());
        if let Some(at) = self.at {
            self.values[at] = Some(Vec::new());
        }
    }

    pub fn value(&mut self, value: &[u8]) {
        if let Some(at) = self.at {
            self.values[at] = Some(value.trim_ascii().to_owned());
        }
    }

    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        self.values[ATTRIBUTES.iter().position(|known| *known == name)?].clone()
    }
}

/// An emitter without text, comments and errors, which would take nearly a third of the time.
pub(super) struct TagsOnly<E>(pub E);

impl<E: Emitter> ForwardingEmitter for TagsOnly<E> {
    type Token = E::Token;

    fn inner(&mut self) -> &mut impl Emitter<Token = E::Token> {
        &mut self.0
    }

    fn should_emit_errors(&mut self) -> bool {
        false
    }

    fn emit_string(&mut self, _: &[u8]) {}

    fn push_comment(&mut self, _: &[u8]) {}
}

/// Names of the attributes that are read.
const ATTRIBUTES: [&str; 5] = ["name", "content", "rel", "href", "type"];
