//! The file that was asked for and those that it includes: read one by one, so that each fault keeps its place, and joined
//! to one tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::environment::Variable;
use super::error::{Complaint, ConfigErrors, ConfigFault, ConfigPlace, ConfigText};
use super::source::{At, Value, YamlNode};
use super::text::{read_text, syntax};

/// What has been read, and what is wrong with it so far.
#[derive(Default)]
pub(in crate::config) struct ConfigFiles {
    sources: Vec<ConfigText>,
    /// Where no value stands: files that are no YAML.
    unread: Vec<ConfigFault>,
    pub faults: Vec<(At, Complaint)>,
}

impl ConfigFiles {
    /// Reads one more text. `None`: it is no YAML.
    pub fn read(&mut self, name: &str, text: &str) -> Option<YamlNode> {
        let file = self.sources.len();
        self.sources.push(ConfigText { name: name.to_owned(), text: text.to_owned() });
        let number = u32::try_from(file).ok()?;
        let (mut root, duplicates) = match YamlNode::read_file(text, number) {
            Ok(read) => read,
            Err(error) => {
                self.unread.push(syntax(text, file, &error));
                return None;
            }
        };
        for duplicate in duplicates {
            self.twice(&duplicate.key, duplicate.at, duplicate.first);
        }
        if matches!(root.value, Value::Null) {
            root = YamlNode { at: At::Unwritten, value: Value::Map(Vec::new()) };
        }
        Some(root)
    }

    /// Lays the files that `include` names over the one that names them, and hands each of them to `judge` before.
    pub fn include(&mut self, root: &mut YamlNode, include: &[PathBuf], mut judge: impl FnMut(&YamlNode, &mut Self)) {
        let main = PathBuf::from(&self.sources[0].name);
        let base = main.parent().unwrap_or(Path::new(""));
        let mut joined = YamlNode { at: At::Unwritten, value: Value::Map(Vec::new()) };
        for (index, path) in include.iter().enumerate() {
            let index = index.to_string();
            let at = root.along(&["include", &index]).at;
            let files = match files(&base.join(path)) {
                Ok(files) => files,
                Err(error) => {
                    let what = format!("`{}` cannot be included: {error}", path.display());
                    self.faults.push((at, Complaint::new(what, "name a file, or a directory of *.yaml files")));
                    continue;
                }
            };
            for file in files.into_iter().filter(|file| !is_same(file, &main)) {
                let name = file.display().to_string();
                let text = match read_included(&file) {
                    Ok(text) => text,
                    Err((what, hint)) => {
                        self.faults.push((at, Complaint::new(format!("{name}: {what}"), hint)));
                        continue;
                    }
                };
                let Some(node) = self.read(&name, &text) else { continue };
                if let Some(nested) = node.below("include") {
                    let hint = "name the files in the first one";
                    self.faults.push((nested.at, Complaint::new("an included file includes no others", hint)));
                }
                judge(&node, self);
                self.join(&mut joined, node);
            }
        }
        root.lay_over(joined);
    }

    /// One of the included files beside another: neither overrides the other.
    fn join(&mut self, node: &mut YamlNode, other: YamlNode) {
        match (&mut node.value, other.value) {
            (Value::Map(entries), Value::Map(others)) => {
                for (key, value) in others {
                    match entries.iter_mut().find(|(known, _)| key.text().is_some() && known.text() == key.text()) {
                        None => entries.push((key, value)),
                        Some((known, here)) => match (&here.value, &value.value) {
                            (Value::Map(_), Value::Map(_)) | (Value::List(_), Value::List(_)) => self.join(here, value),
                            (_, Value::Null) => {}
                            (Value::Null, _) => (*known, *here) = (key, value),
                            _ => self.twice(key.text().unwrap_or_default(), key.at, known.at),
                        },
                    }
                }
            }
            (Value::List(items), Value::List(others)) => items.extend(others),
            _ => {}
        }
    }

    fn twice(&mut self, key: &str, at: At, first: At) {
        let hint = match (self.place(first, &[]), at, first) {
            (ConfigPlace::Line { line, .. }, At::Node { file, .. }, At::Node { file: other, .. }) if file == other => {
                format!("already set in line {line}; keep one of them")
            }
            (ConfigPlace::Line { file, line, .. }, ..) => {
                format!("already set in {}:{line}; keep one of them", self.sources[file].name)
            }
            (ConfigPlace::File(_) | ConfigPlace::Variable(_) | ConfigPlace::Unwritten, ..) => {
                String::from("keep one of them")
            }
        };
        self.faults.push((at, Complaint::new(format!("duplicate key `{key}`"), hint)));
    }

    pub fn is_good(&self) -> bool {
        self.unread.is_empty() && self.faults.is_empty()
    }

    /// All that is wrong, with its places.
    pub fn into_errors(mut self, variables: &[Variable]) -> ConfigErrors {
        let mut faults = std::mem::take(&mut self.unread);
        for (at, complaint) in std::mem::take(&mut self.faults) {
            faults.push(ConfigFault { place: self.place(at, variables), complaint });
        }
        ConfigErrors::new(self.sources, faults)
    }

    /// Where the value at the end of this path is written, for people; nowhere: "".
    pub fn shown_place(&self, root: &YamlNode, path: &[&str], variables: &[Variable]) -> String {
        self.place(root.along(path).at, variables).shown(&self.sources).unwrap_or_default()
    }

    fn place(&self, at: At, variables: &[Variable]) -> ConfigPlace {
        match at {
            At::Node { file, number } => {
                let file = file as usize;
                YamlNode::locate(&self.sources[file].text, number)
                    .map_or(ConfigPlace::File(file), |(line, column)| ConfigPlace::Line { file, line, column })
            }
            At::Variable(number) => ConfigPlace::Variable(variables[number as usize].name.clone()),
            At::Unwritten => ConfigPlace::Unwritten,
        }
    }
}

/// The text, or what is wrong and what to do. One of no bytes is being written, or the disk has no room for it: what it adds is not gone.
fn read_included(file: &Path) -> Result<String, (String, &'static str)> {
    match read_text(file, true) {
        Ok(text) if text.is_empty() && file.is_file() => {
            Err(("it is empty".to_owned(), "write `{}` into it, or move it away"))
        }
        read => read
            .map_err(|fault| (fault.complaint.what, "check that it is the right file and readable, or move it away")),
    }
}

/// A file, or those of a directory in the order of their names.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let is_hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// The directory may be the first file's own.
fn is_same(file: &Path, main: &Path) -> bool {
    let [file, main] = [file, main].map(|path| fs::canonicalize(path).ok());
    file.is_some() && file == main
}
