//! The code of `src` as the compiler sees it without its tests: which file is which module, what it defines, what it imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// A module that is a file, by what the rules ask of it.
pub struct Module {
    pub file: PathBuf,
    pub text: String,
    /// Lines outside of tests.
    pub lines: usize,
    /// Types that it defines, those in functions apart.
    pub types: Vec<String>,
    /// The files whose definitions it names. What is only passed on counts where it is defined.
    pub imports: BTreeSet<PathBuf>,
    pub has_tests_before_code: bool,
}

/// All that are compiled into the program.
pub fn modules(src: &Path) -> Vec<Module> {
    let mut parsed = BTreeMap::new();
    parse(src.join("lib.rs"), src, Vec::new(), &mut parsed);
    let tree = Tree(parsed);
    let module = |(path, parsed): (&Vec<String>, &Parsed)| Module {
        file: parsed.file.clone(),
        text: parsed.text.clone(),
        lines: parsed.text.lines().count() - parsed.items.iter().filter_map(tests_in).sum::<usize>(),
        types: types(&parsed.items),
        imports: tree.imports(path, parsed),
        has_tests_before_code: has_tests_before_code(&parsed.items),
    };
    tree.0.iter().map(module).collect()
}

/// Modules by their path from the crate's root.
struct Tree(BTreeMap<Vec<String>, Parsed>);

struct Parsed {
    file: PathBuf,
    text: String,
    items: Vec<Item>,
    /// What `use` gives other names, or brings here: the name, and the path it stands for, from the crate's root.
    uses: BTreeMap<String, Vec<String>>,
    /// The names of `uses` that are public.
    reexports: BTreeSet<String>,
    globs: Vec<Vec<String>>,
}

impl Tree {
    fn imports(&self, path: &[String], module: &Parsed) -> BTreeSet<PathBuf> {
        let used = module.uses.iter().filter(|(name, _)| !module.reexports.contains(*name)).map(|(_, target)| target);
        let mut paths: Vec<_> = used.chain(&module.globs).cloned().collect();
        let mut named = Named { tree: self, path, module, paths: &mut paths };
        module.items.iter().for_each(|item| named.visit_item(item));
        let files = paths.iter().filter_map(|path| self.definer(path, 0)).filter(|file| **file != *module.file);
        files.map(Path::to_owned).collect()
    }

    /// The file that defines what `path` names; `None` for a module as such.
    fn definer(&self, path: &[String], depth: usize) -> Option<&Path> {
        let at = (0..=path.len()).rev().find(|at| self.0.contains_key(&path[..*at])).expect("the root is a module");
        let (module, name) = (&self.0[&path[..at]], path.get(at)?);
        match module.uses.get(name) {
            Some(target) if depth < MOST_REEXPORTS => {
                self.definer(&target.iter().chain(&path[at + 1..]).cloned().collect::<Vec<_>>(), depth + 1)
            }
            _ => Some(&module.file),
        }
    }
}

/// Paths that are written out where they are used.
struct Named<'a> {
    tree: &'a Tree,
    path: &'a [String],
    module: &'a Parsed,
    paths: &'a mut Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) && !matches!(item, Item::Use(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            let whole = match self.module.uses.get(&segments[0]) {
                Some(target) => Some(target.iter().chain(&segments[1..]).cloned().collect()),
                None => absolute(&segments, self.path, |child| self.tree.0.contains_key(child)),
            };
            self.paths.extend(whole);
        }
        visit::visit_path(self, path);
    }
}

fn parse(file: PathBuf, children: &Path, path: Vec<String>, into: &mut BTreeMap<Vec<String>, Parsed>) {
    let text = fs::read_to_string(&file).unwrap();
    let items = syn::parse_file(&text).unwrap_or_else(|fault| panic!("{}: {fault}", file.display())).items;
    let mut names = Vec::new();
    for item in &items {
        if let Item::Mod(module) = item
            && module.content.is_none()
            && !is_test(&module.attrs)
        {
            names.push(module.ident.to_string());
        }
    }
    for name in &names {
        let folder = children.join(name);
        let child: Vec<_> = path.iter().chain([name]).cloned().collect();
        let beside = children.join(format!("{name}.rs"));
        let inside = folder.join("mod.rs");
        parse(if beside.exists() { beside } else { inside }, &folder, child, into);
    }
    let mut module = Parsed { file, text, items, uses: BTreeMap::new(), reexports: BTreeSet::new(), globs: Vec::new() };
    let mut written = Vec::new();
    for item in &module.items {
        if let Item::Use(item) = item
            && !is_test(&item.attrs)
        {
            flatten(&item.tree, &mut Vec::new(), matches!(item.vis, syn::Visibility::Inherited), &mut written);
        }
    }
    for (target, name, private) in written {
        let is_child =
            |child: &[String]| child.split_last().is_some_and(|(name, rest)| rest == path && names.contains(name));
        let Some(target) = absolute(&target, &path, is_child) else { continue };
        if target.last().is_some_and(|last| last == "*") {
            module.globs.push(target);
        } else {
            if !private {
                module.reexports.insert(name.clone());
            }
            module.uses.insert(name, target);
        }
    }
    into.insert(path, module);
}

/// `path` from the crate's root; `None`: it is another crate's.
fn absolute(path: &[String], at: &[String], is_module: impl Fn(&[String]) -> bool) -> Option<Vec<String>> {
    let (mut base, mut rest) = (at.to_vec(), path);
    match path[0].as_str() {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while let [first, others @ ..] = rest
                && first == "super"
            {
                base.pop();
                rest = others;
            }
        }
        child => {
            let child: Vec<_> = at.iter().cloned().chain([child.to_owned()]).collect();
            is_module(&child).then_some(())?;
        }
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

fn flatten(tree: &UseTree, before: &mut Vec<String>, private: bool, into: &mut Vec<(Vec<String>, String, bool)>) {
    let mut leaf = |last: String, name: String| {
        let path: Vec<_> = match last.as_str() {
            "self" if !before.is_empty() => before.clone(),
            _ => before.iter().cloned().chain([last]).collect(),
        };
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name };
        into.push((path, name, private));
    };
    match tree {
        UseTree::Name(name) => leaf(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(name) => leaf(name.ident.to_string(), name.rename.to_string()),
        UseTree::Glob(_) => leaf("*".into(), "*".into()),
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, private, into);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, private, into)),
    }
}

fn types(items: &[Item]) -> Vec<String> {
    let name = |item: &Item| match item {
        Item::Struct(item) => Some(item.ident.to_string()),
        Item::Enum(item) => Some(item.ident.to_string()),
        Item::Trait(item) => Some(item.ident.to_string()),
        Item::Type(item) => Some(item.ident.to_string()),
        _ => None,
    };
    items.iter().filter(|item| !is_test(attributes(item))).filter_map(name).collect()
}

fn has_tests_before_code(items: &[Item]) -> bool {
    let is_body = |item: &Item| matches!(item, Item::Mod(item) if item.content.is_some());
    let tests = items.iter().position(|item| is_body(item) && is_test(attributes(item)));
    tests.is_some_and(|at| items[at..].iter().any(|item| !is_test(attributes(item))))
}

fn tests_in(item: &Item) -> Option<usize> {
    is_test(attributes(item)).then(|| {
        let lines = |span: proc_macro2::Span| span.end().line - span.start().line + 1;
        lines(item.span())
    })
}

/// Whether it is compiled for tests only.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

const MOST_REEXPORTS: usize = 8;
