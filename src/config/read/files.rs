//! The given file and its includes: read one by one, so that each fault keeps its place, and merged into one tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{Complaint, ConfigErrors, ConfigFault, ConfigPlace, ConfigText};
use super::faults::{At, Faults};
use super::text::{read_text, syntax};
use super::tree::{Value, YamlNode};

/// Everything read so far, and its faults.
#[derive(Default)]
pub(in crate::config) struct ConfigFiles {
    sources: Vec<ConfigText>,
    /// Faults of files that are not YAML, and thus have no values.
    unread: Vec<ConfigFault>,
    pub faults: Faults,
}

impl ConfigFiles {
    /// Reads another text. `None`: it is not YAML.
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

    /// Lays the files named by `include` over the file that names them; first passes each to `judge`.
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
                    self.faults.push(nested.at, Complaint::new("an included file must not include others", hint));
                }
                judge(&node, &mut self.faults);
                joined.lay_over(node, &mut |here, other| self.join(here, other));
            }
        }
        root.lay_over(joined, &mut |(key, here), (_, over)| match (&mut here.value, over.value) {
            // `access.users` are appended, as each has a name.
            (Value::List(items), Value::List(others)) if key.text() == Some("users") => items.extend(others),
            (value, other) => (here.at, *value) = (over.at, other),
        });
    }

    /// Included files have equal rank: lists are joined, and a key set in two of them is a fault.
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

    /// All faults with their places, if there are any. `variables`: the names of the variables that were read.
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

    /// The place of `first` as shown next to `place`: without the file if it is the same.
    fn shown_beside(&self, first: &ConfigPlace, place: &ConfigPlace) -> String {
        match (first, place) {
            (ConfigPlace::Line { file, line, .. }, ConfigPlace::Line { file: same, .. }) if file == same => {
                format!("line {line}")
            }
            (ConfigPlace::Line { file, line, .. }, _) => format!("{}:{line}", self.sources[*file].name),
            _ => first.shown(&self.sources).unwrap_or_default(),
        }
    }

    /// The place of the value at this path, for people; empty if it has none.
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

/// The text, or what is wrong with it and a hint. An empty file may be in the course of being written, or the disk may be full: its
/// settings must not silently vanish.
fn read_included(file: &Path) -> Result<String, (String, &'static str)> {
    match read_text(file, true) {
        Ok(text) if text.is_empty() && file.is_file() => {
            Err(("it is empty".to_owned(), "write `{}` into it, or move it away"))
        }
        read => read
            .map_err(|fault| (fault.complaint.what, "check that it is the right file and readable, or move it away")),
    }
}

/// The file itself, or the files in a directory, sorted by name.
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

/// An included directory may contain the first file.
fn is_same(file: &Path, main: &Path) -> bool {
    let [file, main] = [file, main].map(|path| fs::canonicalize(path).ok());
    file.is_some() && file == main
}
