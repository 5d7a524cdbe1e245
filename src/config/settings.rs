//! What is meant: the configuration as everything above reads it. Built from `file`; called by `server` and `cli`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::environment::{self, Variable};
use super::error::{Complaint, ConfigErrors, Fault, Place};
use super::file::{
    self, Admin, CaFiles, Egress, File, Identity, InterceptMode, Limits, Listener, Log, Mode, OnFleetLoss, Pace,
    Robots, Store,
};
use super::hosts::Hosts;
use super::reader;
use super::secrets::{Secret, SecretUrl};
use super::shown::shown;
use super::source::{At, Node, Value};
use super::text::{read_text, syntax};
use super::validate;
use super::values::{AccessLog, Network, Token};
use crate::policy::Host;
use crate::robots::ProductToken;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// A whole configuration, right in itself. `Settings::default()` is what `conf/politely.yaml` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub listen: Vec<Listener>,
    pub admin: Admin,
    pub mode: Mode,
    pub identity: Identity,
    pub robots: Robots,
    pub pace: Pace,
    pub intercept: Intercept,
    pub egress: Egress,
    pub access: Access,
    pub store: Store,
    pub fleet: Option<Fleet>,
    /// What is otherwise for some hosts, `intercept.hosts` included.
    pub hosts: Hosts,
    pub limits: Limits,
    pub log: Log,
    shown: serde_json::Value,
    warnings: Vec<Complaint>,
}

/// What happens to `CONNECT`, for hosts without a word of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intercept {
    pub default: InterceptMode,
    pub ca: CaSource,
    /// Hosts whose certificates are kept ready.
    pub leaf_cache: usize,
}

/// Where the certificate authority comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaSource {
    /// Our own, made on first use. `None`: below the state directory.
    Directory(Option<PathBuf>),
    /// The operator's: a PEM file with the certificate, which intermediates may follow, and its key.
    Files { certificate: PathBuf, key: PathBuf },
}

/// Who may use the proxy. Neither: anybody who reaches it, so loopback only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    pub clients: Vec<Network>,
    pub users: Vec<Arc<User>>,
}

/// Who shows a password, and what holds for their requests.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    pub name: Token,
    /// The password's hash.
    pub password: Secret,
    /// In place of `identity.product_tokens`.
    pub product_tokens: Vec<ProductToken>,
    /// In place of `Settings::hosts`, which these were laid over. `None`: nothing is otherwise for this user.
    pub hosts: Option<Hosts>,
    /// Connections at a time.
    pub max_connections: Option<NonZeroUsize>,
    /// Requests that may wait at a time.
    pub max_waiting: Option<usize>,
}

impl User {
    fn of(user: file::User, hosts: &Hosts) -> Self {
        let own = user.hosts.iter().next().is_some();
        Self {
            name: user.name,
            password: user.password,
            product_tokens: user.product_tokens,
            hosts: own.then(|| hosts.overlaid(user.hosts)),
            max_connections: user.max_connections,
            max_waiting: user.max_waiting,
        }
    }
}

/// The server that all instances share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    pub url: SecretUrl,
    pub on_loss: OnFleetLoss,
}

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

    /// The crawlers whose rules hold at this host, as configured. None: those that the request's `User-Agent` names.
    pub fn product_tokens(&self, host: &Host) -> &[ProductToken] {
        self.hosts.get(host).rules.product_tokens.as_deref().unwrap_or(&self.identity.product_tokens)
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
            let mut check = validate::Check::new(&root, &mut faults);
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

    fn from_file(file: File, shown: serde_json::Value, check: &mut validate::Check<'_>) -> Self {
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

    /// What is no fault but may not be meant.
    pub fn warnings(&self) -> &[Complaint] {
        &self.warnings
    }

    /// All of it as JSON in the form of the file, without its secrets.
    pub fn shown(&self) -> &serde_json::Value {
        &self.shown
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
