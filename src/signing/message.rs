//! The signature of one message (RFC 9421 §2.5, §3.1, §4): what it covers, what it says of itself, and its fields.

use super::key::SigningKey;
use sfv::{
    DictSerializer, InnerListSerializer, ItemSerializer, KeyRef, ListSerializer, ParameterSerializer, RefBareItem,
    StringRef,
};
use std::borrow::BorrowMut;

/// A part of the message that is covered.
pub(super) struct Component<'a> {
    pub name: &'static str,
    pub part: Part<'a>,
    pub value: &'a str,
}

/// Which part of what the name stands for.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Whole,
    /// A member of the dictionary.
    Member(&'a KeyRef),
    /// That of the request which is answered.
    Request,
}

/// What a signature says of itself, in this order.
pub(super) type Parameters<'a> = &'a [(&'static str, RefBareItem<'a>)];

/// The values of `Signature-Input` and `Signature`, each with one member.
pub(super) struct Fields {
    pub input: String,
    pub signature: String,
}

pub(super) fn sign(
    key: &SigningKey,
    label: &KeyRef,
    components: &[Component<'_>],
    parameters: Parameters<'_>,
) -> Fields {
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
    Fields { input: input.finish().unwrap_or_default(), signature: signature.finish().unwrap_or_default() }
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

/// Names of ours, keys and URLs: each is a string of structured fields as well.
pub(super) fn string(name: &str) -> &StringRef {
    StringRef::from_str(name).expect("it is ASCII")
}

pub(super) fn key(name: &str) -> &KeyRef {
    KeyRef::from_str(name).expect("it is a name of ours")
}

/// Seconds since 1970.
pub(super) fn number<'a>(seconds: u64) -> RefBareItem<'a> {
    RefBareItem::try_from(seconds).unwrap_or(RefBareItem::Boolean(false))
}
