//! What code names that Linux alone may have, outside of what is compiled for Linux alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Arm, Attribute, Expr, Field, ImplItem, Item, Local, UseTree};

use super::source::{attributes, is_test};

/// What of `items` may be Linux's alone.
pub fn used(items: &[Item]) -> Used {
    let mut used = Used::default();
    items.iter().for_each(|item| used.visit_item(item));
    used
}

#[derive(Default)]
pub struct Used {
    /// Of libc.
    pub names: BTreeSet<String>,
    /// Such as "/proc/self", and `std::os::linux`.
    pub texts: BTreeSet<String>,
}

/// Whether it is compiled for Linux alone.
pub fn is_linux(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.map(|attribute| attribute.meta.require_list().unwrap().tokens.to_string()).any(|condition| {
        let is_named = ["target_os = \"linux\"", "target_env = \"gnu\""].iter().any(|name| condition.contains(name));
        is_named && !condition.contains("not") && !condition.contains("any")
    })
}

/// All names that the libc that this is built with has for macOS, but for C's types, which it has everywhere.
pub fn macos_libc() -> BTreeSet<String> {
    // Of other platforms' crates not even the manifests need be here.
    let platform = format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--format-version=1", "--locked", "--offline", &platform];
    let asked = Command::new(env!("CARGO")).args(arguments).output().unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&asked.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&asked.stderr)));
    let package = metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == "libc").unwrap();
    let source = Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("src");
    let folders = ["unix/bsd/apple", "new/apple", "new/common"].map(|folder| super::sources(&source.join(folder)));
    let files = ["primitives.rs", "unix/mod.rs", "unix/bsd/mod.rs"].map(|file| source.join(file));
    let mut names = BTreeSet::new();
    for file in folders.into_iter().flatten().chain::<[PathBuf; 3]>(files) {
        let text = fs::read_to_string(&file).unwrap();
        let mut before = "";
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty()) {
            if ["const", "fn", "type", "struct", "union", "enum"].contains(&before) {
                names.insert(word.to_owned());
            }
            before = word;
        }
    }
    names
}

impl Used {
    /// What a macro is given, which may be no syntax of Rust.
    fn look_into(&mut self, tokens: TokenStream) {
        let mut before = [const { String::new() }; 3];
        for token in tokens {
            if let TokenTree::Group(group) = &token {
                self.look_into(group.stream());
            }
            let word = token.to_string();
            if before.concat() == "libc::" {
                self.names.insert(word.clone());
            }
            if let TokenTree::Literal(literal) = token {
                self.note_text(&literal.to_string());
            }
            before.rotate_left(1);
            before[2] = word;
        }
    }

    fn note_text(&mut self, literal: &str) {
        if literal.starts_with("\"/proc/") || literal.starts_with("\"/sys/") {
            self.texts.insert(literal.to_owned());
        }
    }
}

impl<'ast> Visit<'ast> for Used {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) && !is_linux(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !matches!(item, ImplItem::Fn(function) if is_linux(&function.attrs)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !is_linux(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        if !is_linux(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if !is_linux(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        let attributes: &[Attribute] = match expression {
            Expr::Block(block) => &block.attrs,
            Expr::Call(call) => &call.attrs,
            Expr::ForLoop(repeated) => &repeated.attrs,
            Expr::If(condition) => &condition.attrs,
            Expr::Match(choice) => &choice.attrs,
            Expr::MethodCall(call) => &call.attrs,
            Expr::Return(end) => &end.attrs,
            Expr::Unsafe(block) => &block.attrs,
            _ => &[],
        };
        if !is_linux(attributes) {
            visit::visit_expr(self, expression);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.look_into(call.tokens.clone());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let [first, name, ..] = segments.as_slice()
            && first == "libc"
        {
            self.names.insert(name.clone());
        }
        if segments.starts_with(&["std", "os", "linux"].map(String::from)) {
            self.texts.insert(segments.join("::"));
        }
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let (mut path, mut tree) = (String::new(), &item.tree);
        while let UseTree::Path(first) = tree {
            path += &format!("{}::", first.ident);
            tree = &first.tree;
        }
        if path.starts_with("libc::") || path.starts_with("std::os::linux::") {
            self.texts.insert(format!("use {path}"));
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.note_text(&literal.token().to_string());
    }
}
