//! The file that was asked for and those that it includes: read one by one, so that each fault keeps its place, and joined
//! to one tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{Complaint, ConfigErrors, ConfigFault, ConfigPlace, ConfigText};
use super::faults::{At, Faults};
use super::text::{read_text, syntax};
use super::tree::{Value, YamlNode};

/// What has been read, and what is wrong with it so far.
#[derive(Default)]
pub(in crate::config) struct ConfigFiles {
    sources: Vec<ConfigText>,
    /// Where no value stands: files that are no YAML.
    unread: Vec<ConfigFault>,
    pub faults: Faults,
}

impl ConfigFiles {
    /// Reads one more text. `None`: it is no YAML.
    pub fn read(&mut self, name: &str, text: &str) -> Option<YamlNode> {
        let file = self.sources.len();
        self.sources.push(ConfigText::new(name, text));
        let at = |number| At::Node { file: file as u32, number };
        match YamlNode::read(text, "", &at, &mut self.faults) {
            Ok(root) if root.is_null() => Some(YamlNode::empty()),
            Ok(mut root) => {
                root.spell_out();
                Some(root)
            }
            Err(error) => {
                self.unread.push(syntax(text, file, &error));
                None
            }
        }
    }

    /// Lays the files that `include` names over the one that names them, and hands each of them to `judge` before.
    pub fn include(&mut self, root: &mut YamlNode, include: &[PathBuf], mut judge: impl FnMut(&YamlNode, &mut Faults)) {
        let main = PathBuf::from(&self.sources[0].name);
        let base = main.parent().unwrap_or(Path::new(""));
        let mut joined = YamlNode::empty();
        for (index, path) in include.iter().enumerate() {
            let at = root.along(&["include", &index.to_string()]).at;
            let files = match files(&base.join(path)) {
                Ok(files) => files,
                Err(error) => {
                    let what = format!("`{}` cannot be included: {error}", path.display());
                    self.faults.push(at, Complaint::new(what, "name a file, or a directory of *.yaml files"));
                    continue;
                }
            };
            for file in files.into_iter().filter(|file| !is_same(file, &main)) {
                let name = file.display().to_string();
                let text = match read_included(&file) {
                    Ok(text) => text,
                    Err((what, hint)) => {
                        self.faults.push(at, Complaint::new(format!("{name}: {what}"), hint));
                        continue;
                    }
                };
                let Some(node) = self.read(&name, &text) else { continue };
                if let Some(nested) = node.below("include") {
                    let hint = "name the files in the first one";
                    self.faults.push(nested.at, Complaint::new("an included file includes no others", hint));
                }
                judge(&node, &mut self.faults);
                joined.lay_over(node, &mut |here, other| self.join(here, other));
            }
        }
        root.lay_over(joined, &mut |(key, here), (_, over)| match (&mut here.value, over.value) {
            // `access.users` have names, and are added.
            (Value::List(items), Value::List(others)) if key.text() == Some("users") => items.extend(others),
            (value, other) => (here.at, *value) = (over.at, other),
        });
    }

    /// Included files are equals: lists are joined, and neither overrides the other.
    fn join(&mut self, (first, here): &mut (YamlNode, YamlNode), (key, other): (YamlNode, YamlNode)) {
        match (&mut here.value, other.value) {
            (Value::List(items), Value::List(others)) => items.extend(others),
            _ => {
                let what = format!("duplicate key `{}`", key.text().unwrap_or_default());
                let complaint = Complaint::new(what, "already set in {}; keep one of them");
                self.faults.push_repeated(key.at, first.at, complaint);
            }
        }
    }

    /// All that is wrong, with its places, if anything is. `variables`: the names of those that were read.
    pub fn check(&mut self, variables: &[&str]) -> Result<(), ConfigErrors> {
        let mut faults = std::mem::take(&mut self.unread);
        for fault in std::mem::take(&mut self.faults).into_vec() {
            let (mut complaint, place) = (fault.complaint, self.place(fault.at, variables));
            if let Some(first) = fault.first.map(|first| self.place(first, variables)) {
                complaint.hint = complaint.hint.replace("{}", &self.shown_beside(&first, &place));
            }
            faults.push(ConfigFault { place, complaint });
        }
        if faults.is_empty() { Ok(()) } else { Err(ConfigErrors::new(std::mem::take(&mut self.sources), faults)) }
    }

    /// `line 3` beside another place in that file, else the file too.
    fn shown_beside(&self, first: &ConfigPlace, place: &ConfigPlace) -> String {
        match (first, place) {
            (ConfigPlace::Line { file, line, .. }, ConfigPlace::Line { file: same, .. }) if file == same => {
                format!("line {line}")
            }
            (ConfigPlace::Line { file, line, .. }, _) => format!("{}:{line}", self.sources[*file].name),
            _ => first.shown(&self.sources).unwrap_or_default(),
        }
    }

    /// Where the value at the end of this path is written, for people; nowhere: "".
    pub fn shown_place(&self, root: &YamlNode, path: &[&str], variables: &[&str]) -> String {
        self.place(root.along(path).at, variables).shown(&self.sources).unwrap_or_default()
    }

    fn place(&self, at: At, variables: &[&str]) -> ConfigPlace {
        match at {
            At::Node { file, number } => {
                let file = file as usize;
                let place = self.sources[file].places().get(number as usize);
                place.map_or(ConfigPlace::File(file), |&(line, column)| ConfigPlace::Line { file, line, column })
            }
            At::Variable(number) => ConfigPlace::Variable(variables[number as usize].to_owned()),
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
