//! From a file and the environment to [`Settings`]: read, checked, and what is written made into what is meant.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::hosts::Hosts;
use super::read::check::Check;
use super::read::environment::{self, Variable};
use super::read::error::{Complaint, ConfigErrors, Fault, Place};
use super::read::reader;
use super::read::source::{At, Node, Value};
use super::read::text::{read_text, syntax};
use super::settings::{Access, CaSource, Fleet, Intercept, Settings, User};
use super::shown::shown;
use super::validate;
use super::written::file::{CaFiles, File};
use super::written::values::AccessLog;

impl Settings {
    /// Reads the file, if there is one, and lays the environment (`std::env::vars_os()`) over it. Relative paths start at
    /// the file's directory.
    ///
    /// # Errors
    /// All that is wrong with it, at once.
    pub fn load(
        path: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigErrors> {
        let environment: Vec<_> = environment.into_iter().collect();
        let strange = environment::service_links(&environment);
        let variables = environment::variables(environment);
        let mut settings = match path {
            None => Self::build("", "", &variables)?,
            Some(path) => {
                let name = path.display().to_string();
                let text = read_text(path).map_err(|fault| ConfigErrors::new(&name, "", vec![fault]))?;
                Self::build(&name, &text, &variables)?
            }
        };
        settings.warnings.extend(strange);
        Ok(settings)
    }

    /// Reads a text as the file `name`, without any environment.
    ///
    /// # Errors
    /// All that is wrong with it, at once.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigErrors> {
        Self::build(name, text, &[])
    }

    fn build(name: &str, text: &str, variables: &[Variable]) -> Result<Self, ConfigErrors> {
        let mut faults = Vec::new();
        let mut root = match Node::read(text) {
            Ok((root, duplicates)) => {
                faults.extend(duplicates.into_iter().map(|duplicate| {
                    let first = place(text, variables, duplicate.first);
                    let hint = match first {
                        Place::Line { line, .. } => format!("it stands in line {line} already; keep one of them"),
                        Place::File | Place::Variable(_) | Place::Unwritten => String::from("keep one of them"),
                    };
                    (duplicate.at, Complaint::new(format!("duplicate key `{}`", duplicate.key), hint))
                }));
                root
            }
            Err(error) => return Err(ConfigErrors::new(name, text, vec![syntax(text, &error)])),
        };
        if matches!(root.value, Value::Null) {
            root = Node { at: At::Unwritten, value: Value::Map(Vec::new()) };
        }
        let mut file: File = reader::read(&root, &mut faults);
        if !variables.is_empty() {
            environment::overlay(&mut root, variables, &mut faults);
            // What is wrong in the file is wrong even where a variable takes its place, and has been told.
            let mut again = Vec::new();
            file = reader::read(&root, &mut again);
            faults.extend(again.into_iter().filter(|(at, _)| !matches!(at, At::Node(_))));
        }
        // What depends on several keys is judged only when each of them is right.
        let settings = if faults.is_empty() {
            let mut check = Check::new(&root, &mut faults);
            let mut settings = Self::from_file(file, shown(&root), &mut check);
            validate::check(&settings, &mut check);
            settings.warnings = validate::warnings(&settings);
            Some(settings)
        } else {
            None
        };
        match settings {
            Some(settings) if faults.is_empty() => Ok(settings.based(Path::new(name).parent())),
            Some(_) | None => {
                let placed =
                    faults.into_iter().map(|(at, complaint)| Fault { place: place(text, variables, at), complaint });
                Err(ConfigErrors::new(name, text, placed.collect()))
            }
        }
    }

    fn from_file(file: File, shown: serde_json::Value, check: &mut Check<'_>) -> Self {
        let options = file.options();
        let CaFiles { directory, certificate, key } = file.intercept.ca;
        let ca = match (certificate, key) {
            (Some(certificate), Some(key)) if directory.is_none() => CaSource::Files { certificate, key },
            (None, None) => CaSource::Directory(directory),
            (Some(_), None) => {
                check.fault(
                    &["intercept", "ca", "certificate"],
                    "this certificate lacks its key",
                    "add `key: …` beside it",
                );
                CaSource::Directory(directory)
            }
            (None, Some(_)) => {
                check.fault(
                    &["intercept", "ca", "key"],
                    "this key lacks its certificate",
                    "add `certificate: …` beside it",
                );
                CaSource::Directory(directory)
            }
            (Some(_), Some(_)) => {
                let hint = "leave out `directory` to use this certificate, or `certificate` and `key` to have one made";
                check.fault(
                    &["intercept", "ca", "certificate"],
                    "a certificate of your own and a directory exclude each other",
                    hint,
                );
                CaSource::Directory(directory)
            }
        };
        validate::users(&file.access.users, check);
        let hosts = Hosts::build(options, file.intercept.default, file.hosts, file.intercept.hosts, check);
        let users = file.access.users.into_iter().map(|user| Arc::new(User::of(user, &hosts)));
        let access = Access { clients: file.access.clients, users: users.collect() };
        Self {
            listen: file.listen,
            admin: file.admin,
            mode: file.mode,
            identity: file.identity,
            robots: file.robots,
            pace: file.pace,
            intercept: Intercept { default: file.intercept.default, ca, leaf_cache: file.intercept.leaf_cache.get() },
            egress: file.egress,
            access,
            store: file.store,
            fleet: file.fleet.map(|url| Fleet { url, on_loss: file.on_fleet_loss }),
            hosts,
            limits: file.limits,
            log: file.log,
            shown,
            warnings: Vec::new(),
        }
    }

    /// Makes relative paths start at `base`.
    fn based(mut self, base: Option<&Path>) -> Self {
        let Some(base) = base else { return self };
        let mut paths: Vec<&mut PathBuf> = Vec::new();
        for tls in self.listen.iter_mut().filter_map(|listener| listener.tls.as_mut()) {
            paths.extend([&mut tls.certificate, &mut tls.key]);
            paths.extend(tls.client_ca.as_mut());
        }
        match &mut self.intercept.ca {
            CaSource::Directory(directory) => paths.extend(directory.as_mut()),
            CaSource::Files { certificate, key } => paths.extend([certificate, key]),
        }
        paths.extend(self.admin.token_file.as_mut());
        paths.extend(self.egress.ca_file.as_mut());
        paths.extend(self.store.directory.as_mut());
        if let AccessLog::File(path) = &mut self.log.access {
            paths.push(path);
        }
        for path in paths {
            *path = base.join(&*path);
        }
        self.hosts.base(base);
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::parse("", "").expect("the defaults are right, as a test holds")
    }
}

fn place(text: &str, variables: &[Variable], at: At) -> Place {
    match at {
        At::Node(number) => {
            Node::locate(text, number).map_or(Place::File, |(line, column)| Place::Line { line, column })
        }
        At::Variable(number) => Place::Variable(variables[number as usize].name.clone()),
        At::Unwritten => Place::Unwritten,
    }
}
