//! Reads the given file and its included files one by one, so that each fault has its place, and merges them into one tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Complaint, ConfigErrors, ConfigPlace, ConfigText, Faults};
use super::places::places;
use super::text::{read_text, syntax};
use super::tree::{Value, YamlNode};

/// The files read so far, and their faults.
#[derive(Default)]
pub(in crate::config) struct ConfigFiles {
    pub sources: Vec<ConfigText>,
    pub faults: Faults,
}

impl ConfigFiles {
    /// Reads the text of one more file. `None`: the text is not YAML.
    pub fn read(&mut self, name: &str, text: String) -> Option<YamlNode> {
        let file = self.sources.len();
        // A byte order mark is not a part of the text (YAML 1.2.2 §5.2).
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        };
        let read = read(&text, file, &mut self.faults);
        self.sources.push(ConfigText { name: name.to_owned(), text });
        let root = read.map_err(|(place, complaint)| self.faults.push(&place, complaint)).ok()?;
        Some(if root.is_null() { YamlNode::empty() } else { root })
    }

    /// Reads the files of `include`. `root`: the tree with `include`, for the places of faults.
    pub fn included(&mut self, root: &YamlNode, include: &[PathBuf]) -> Vec<YamlNode> {
        let main = PathBuf::from(&self.sources[0].name);
        let base = main.parent().unwrap_or(Path::new(""));
        let mut included = Vec::new();
        for (index, path) in include.iter().enumerate() {
            let at = &root.along(&["include", &index.to_string()]).at;
            let path_to = base.join(path);
            if is_same(&path_to, &main) {
                let what = format!("`{}` is this file itself", path.display());
                self.faults.push(at, Complaint::new(what, "leave it out, or name another file"));
            }
            let found = files(&path_to).unwrap_or_else(|error| {
                let what = format!("`{}` cannot be included: {error}", path.display());
                self.faults.push(at, Complaint::new(what, "name a file, or a directory of *.yaml files"));
                Vec::new()
            });
            for file in found.into_iter().filter(|file| !is_same(file, &main)) {
                let name = file.display().to_string();
                let text = read_text(&file, true).map_err(|Complaint { what, hint }| {
                    self.faults.push(at, Complaint::new(format!("{name}: {what}"), hint));
                });
                let Some(node) = text.ok().and_then(|text| self.read(&name, text)) else { continue };
                // An empty file may be half written, or the disk may have been full: its settings must not silently vanish.
                if node.at == ConfigPlace::Unwritten && file.is_file() {
                    let what = format!("{name}: it is empty");
                    self.faults.push(at, Complaint::new(what, "write `{}` into it, or move it away"));
                    continue;
                }
                if let Some(nested) = node.below("include") {
                    let hint = "name these files in the first file";
                    self.faults.push(&nested.at, Complaint::new("an included file must not include others", hint));
                }
                included.push(node);
            }
        }
        included
    }

    /// Lays included files over the file that names them. Included files have equal rank: their lists are joined, and they must not set the
    /// same key.
    pub fn join(&mut self, root: &mut YamlNode, included: Vec<YamlNode>) {
        let mut joined = YamlNode::empty();
        for node in included {
            joined.lay_over(node, &mut |(first, here), (key, over)| match (&mut here.value, over.value) {
                (Value::List(items), Value::List(others)) => extend(items, others),
                (_, Value::Null) => {}
                _ => {
                    let what = format!("duplicate key `{}`", key.text().unwrap_or_default());
                    let hint = format!("already set in {}; keep one of them", first.at.line(&self.sources));
                    self.faults.push(&key.at, Complaint::new(what, hint));
                }
            });
        }
        root.lay_over(joined, &mut |(key, here), (_, over)| match (&mut here.value, over.value) {
            (_, Value::Null) => {
                let key = key.text().unwrap_or_default();
                let what = format!("`{key}` has no value here, but has one in {}", here.at.line(&self.sources));
                let hint = "leave the key out to keep that value; to replace it, write another value, such as `0`, `[]` or `{}`";
                self.faults.push(&over.at, Complaint::new(what, hint));
            }
            // Lists of `access.users` are joined, as each user has a name.
            (Value::List(items), Value::List(others)) if key.text() == Some("users") => extend(items, others),
            (value, other) => (here.at, *value) = (over.at, other),
        });
    }

    /// Returns `settings`, or the faults if there are any.
    pub fn checked<T>(self, settings: T) -> Result<T, ConfigErrors> {
        ConfigErrors::new(self.sources, self.faults).map_or(Ok(settings), Err)
    }
}

fn extend(items: &mut Arc<Vec<YamlNode>>, others: Arc<Vec<YamlNode>>) {
    Arc::make_mut(items).extend(Arc::unwrap_or_clone(others));
}

/// Parses the text of the file with this number into a tree, with `fleet: URL` in its long form.
fn read(text: &str, file: usize, faults: &mut Faults) -> Result<YamlNode, (ConfigPlace, Complaint)> {
    let line = |&(line, column): &(usize, usize)| ConfigPlace::Line { file, line, column };
    let places = places(text);
    let at = |number: usize| places.get(number).map_or(ConfigPlace::File(file), line);
    let mut root = YamlNode::read(text, "", &at, faults).map_err(|error| syntax(text, file, &error))?;
    if let Some(fleet) = root.below("fleet").cloned() {
        root.set(&["fleet"], fleet);
    }
    Ok(root)
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

/// Whether `file` is the first file, which an included directory may contain.
fn is_same(file: &Path, main: &Path) -> bool {
    let [file, main] = [file, main].map(|path| fs::canonicalize(path).ok());
    file.is_some() && file == main
}
