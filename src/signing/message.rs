//! The signature of one message (RFC 9421 §2.5, §3.1, §4): covered components, parameters, and fields.

use super::key::SigningKey;
use sfv::{
    DictSerializer, InnerListSerializer, ItemSerializer, KeyRef, ListSerializer, ParameterSerializer, RefBareItem,
    StringRef,
};
use std::borrow::BorrowMut;

/// A covered component of the message.
pub(super) struct Component<'a> {
    pub name: &'static str,
    pub part: Part<'a>,
    pub value: &'a str,
}

/// The covered part of a component.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Whole,
    /// One member of a field that is a dictionary.
    Member(&'a KeyRef),
    /// The component of the request, covered by the signature of its answer.
    Request,
}

/// The parameters of a signature, in this order.
pub(super) type Parameters<'a> = &'a [(&'static str, RefBareItem<'a>)];

/// Signs a message. Returns the values of `Signature-Input` and `Signature`, with one member each.
pub(super) fn sign(
    key: &SigningKey,
    label: &KeyRef,
    components: &[Component<'_>],
    parameters: Parameters<'_>,
) -> (String, String) {
    let mut base = String::new();
    for component in components {
        component.put(ItemSerializer::with_buffer(&mut base).bare_item(string(component.name)));
        base += ": ";
        base += component.value;
        base.push('\n');
    }
    let mut own = ListSerializer::new();
    put(own.inner_list(), components, parameters);
    base += "\"@signature-params\": ";
    base += &own.finish().unwrap_or_default();

    let mut input = DictSerializer::new();
    put(input.inner_list(label), components, parameters);
    let mut signature = DictSerializer::new();
    let _ = signature.bare_item(label, RefBareItem::ByteSequence(&key.sign(base.as_bytes())));
    (input.finish().unwrap_or_default(), signature.finish().unwrap_or_default())
}

fn put(mut list: InnerListSerializer<'_>, components: &[Component<'_>], parameters: Parameters<'_>) {
    for component in components {
        component.put(list.bare_item(string(component.name)));
    }
    let mut end = list.finish();
    for (name, value) in parameters {
        end = end.parameter(key(name), *value);
    }
    let _ = end.finish();
}

impl Component<'_> {
    fn put<W: BorrowMut<String>>(&self, item: ParameterSerializer<W>) {
        let item = match self.part {
            Part::Whole => item,
            Part::Member(member) => item.parameter(key("key"), string(member.as_str())),
            Part::Request => item.parameter(key("req"), true),
        };
        let _ = item.finish();
    }
}

/// Makes a string for a structured field. Never fails for our names, keys and URLs, which are ASCII.
pub(super) fn string(name: &str) -> &StringRef {
    StringRef::from_str(name).expect("the value is ASCII")
}

pub(super) fn key(name: &str) -> &KeyRef {
    KeyRef::from_str(name).expect("our names are valid keys")
}

/// Makes a number for a structured field from seconds since 1970.
pub(super) fn number<'a>(seconds: u64) -> RefBareItem<'a> {
    RefBareItem::try_from(seconds).unwrap_or(RefBareItem::Boolean(false))
}
