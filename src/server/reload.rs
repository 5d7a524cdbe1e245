//! Applies changed settings, one reload at a time. If a part of a reload fails, nothing is changed. Reports each key that needs a restart.

use super::listeners::Listeners;
use super::{StartError, roots_of, sockets};
use crate::admin::Admin;
use crate::config::{Changes, Hosts, Settings, hint_for, read_file};
use crate::proxy::Proxy;
use crate::telemetry::LogChange;
use crate::tls::{Ca, roots};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use time::OffsetDateTime;

/// Reads the configuration; an error says what is wrong with it.
pub(super) type Load = Box<dyn Fn() -> Result<Settings, String> + Send + Sync>;

/// Everything that settings affect.
pub(super) struct Reloadable {
    pub proxy: Arc<Proxy>,
    pub listeners: Listeners,
    pub admin: Option<(Arc<Admin>, SocketAddr)>,
    /// Source of changed settings.
    pub load: OnceLock<Load>,
    /// Locked for the duration of a reload.
    known: Mutex<LoadedFiles>,
}

/// The files that were read with the settings.
struct LoadedFiles {
    roots: String,
    files: FileDigests,
}

/// Digests of the files that the settings name, by key. `None`: the file could not be read.
type FileDigests = BTreeMap<String, Option<[u8; 32]>>;

impl Reloadable {
    /// `roots`: the roots for verifying origins, as PEM.
    pub fn new(
        proxy: Arc<Proxy>,
        listeners: Listeners,
        admin: Option<(Arc<Admin>, SocketAddr)>,
        roots: String,
    ) -> Self {
        let settings = proxy.settings.load_full();
        let files = files(&settings, proxy.leaves.ca().path());
        Self { proxy, listeners, admin, load: OnceLock::new(), known: Mutex::new(LoadedFiles { roots, files }) }
    }

    /// Loads and applies the configuration, and logs the result. An error says what is wrong; nothing is changed then. `None`: no
    /// source is set. Blocks; must run within a runtime.
    pub fn reload_from_file(&self) -> Option<Result<Changes, String>> {
        let load = self.load.get()?;
        let mut known = self.known.lock();
        let done = load().and_then(|settings| {
            let complaint =
                |error: StartError| format!("error: {error}\nhint: {}", hint_for(&error.to_string(), error.hint()));
            self.apply(settings, &mut known).map_err(complaint)
        });
        match &done {
            Ok(Changes { changed, needs_restart }) if needs_restart.is_empty() => {
                tracing::info!("configuration reloaded: {}", listed(changed));
            }
            Ok(Changes { changed, needs_restart }) => {
                let (changed, needs_restart) = (listed(changed), needs_restart.join(", "));
                tracing::warn!(
                    "configuration not reloaded in full: {needs_restart} needs a restart; reloaded: {changed}"
                );
            }
            Err(error) => tracing::error!("configuration not reloaded, the old one stays in force:\n{error}"),
        }
        if let Some((admin, _)) = &self.admin {
            admin.last_reload.note(match &done {
                Ok(changes) if changes.needs_restart.is_empty() => None,
                Ok(changes) => Some(format!("needs a restart: {}", changes.needs_restart.join(", "))),
                Err(error) => Some(in_one_line(error)),
            });
        }
        Some(done)
    }

    /// Applies these settings as far as a running proxy can. After an error, nothing is changed.
    pub fn reload(&self, settings: Settings) -> Result<Changes, StartError> {
        self.apply(settings, &mut self.known.lock())
    }

    fn apply(&self, settings: Settings, known: &mut LoadedFiles) -> Result<Changes, StartError> {
        let Self { proxy, listeners, admin, .. } = self;
        let before = proxy.settings.load_full();
        let (settings, mut changes) = settings.in_place_of(&before, proxy.gate.may_join_fleet());
        let settings = Arc::new(settings);

        // Steps that may fail.
        let logs = LogChange::prepare(&settings.log).map_err(|error| StartError::log(&settings, error))?;
        let roots = roots::configured(&settings)?;
        // Fails if a start would fail.
        let ca = Ca::configured(&settings)?;
        let ca = match proxy.leaves.ca().is_same(&ca) {
            true => None,
            false => Some(proxy.leaves.prepare(ca)?),
        };
        let plan = listeners.plan(&settings)?;
        let admin_address = admin.as_ref().map(|(_, address)| *address);
        let own = plan.addresses().chain(admin_address).collect::<Vec<_>>();
        let before = listeners.addresses().into_iter().map(|(address, _)| address).chain(admin_address);
        sockets::warn_of_unclaimed(&own, Some(&before.collect::<Vec<_>>()));
        let prepared = if roots.pem == known.roots {
            proxy.upstream.prepare(&settings, None, own)?
        } else {
            proxy.upstream.prepare(&settings, Some(roots_of(&roots)), own)?
        };
        let mut files = files(&settings, ca.as_ref().unwrap_or(&proxy.leaves.ca()).path());
        logs.apply()?;

        // Steps that cannot fail.
        changes.name_files(&known.files, &mut files);
        if let Some(ca) = ca {
            tracing::info!("HTTPS clients have to trust {} from now on", ca.path().display());
            if let Some(warning) = ca.warning(OffsetDateTime::now_utc()) {
                tracing::warn!("{warning}");
            }
            proxy.leaves.adopt(ca);
        }
        proxy.reload(settings, prepared);
        listeners.apply(plan);
        if let Some((admin, _)) = admin {
            admin.listeners.store(Arc::new(listeners.addresses()));
            admin.store_token();
        }
        proxy.settings.load().log_warnings();
        *known = LoadedFiles { roots: roots.pem, files };
        Ok(changes)
    }
}

impl Changes {
    /// Adds the keys of files whose content has changed.
    fn name_files(&mut self, before: &FileDigests, now: &mut FileDigests) {
        for (key, content) in now {
            let Some(old) = before.get(key).filter(|old| *old != content) else { continue };
            let takes_restart = TAKE_RESTART.contains(&key.as_str());
            if takes_restart {
                // The old content stays in force until the restart.
                *content = *old;
            }
            let named = if takes_restart { &mut self.needs_restart } else { &mut self.changed };
            if !named.iter().any(|named| {
                named.strip_prefix(key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            }) {
                named.push(key.clone());
            }
        }
    }
}

/// Shortens an error to one line: the first diagnostic, preceded by its place.
fn in_one_line(error: &str) -> String {
    let what = error.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let place = error.lines().nth(1).and_then(|line| line.trim_start().strip_prefix("--> "));
    place.map_or_else(|| what.to_owned(), |place| format!("{place}: {what}"))
}

/// The changed keys for the log: the first [`LISTED`], and the number of the others.
fn listed(changed: &[String]) -> String {
    match changed.len() {
        0 => "nothing has changed".into(),
        1..=LISTED => changed.join(", "),
        all => format!("{} and {} more", changed[..LISTED].join(", "), all - LISTED),
    }
}

fn files(settings: &Settings, ca: &Path) -> FileDigests {
    let mut named: Vec<(String, PathBuf)> = vec![("intercept.ca".into(), ca.to_owned())];
    let mut name = |key: String, path: Option<&PathBuf>| named.extend(path.map(|path| (key, path.clone())));
    name("admin.token_file".into(), settings.admin.token_file.as_ref());
    name("egress.ca_file".into(), settings.egress.ca_file.as_ref());
    let signature = &settings.identity.signature;
    name("identity.signature.key".into(), signature.key.as_ref());
    for (number, key) in signature.other_keys.iter().enumerate() {
        name(format!("identity.signature.other_keys[{number}]"), Some(key));
    }
    for (number, listener) in settings.listen.iter().enumerate() {
        let tls = listener.tls.as_ref();
        name(format!("listen[{number}].tls.certificate"), tls.map(|tls| &tls.certificate));
        name(format!("listen[{number}].tls.key"), tls.map(|tls| &tls.key));
        name(format!("listen[{number}].tls.client_ca"), tls.and_then(|tls| tls.client_ca.as_ref()));
    }
    let users = settings.access.users.iter().filter_map(|user| user.hosts.as_ref());
    let pairs = users.chain([&settings.hosts]).flat_map(Hosts::tls).filter_map(|tls| tls.client_certificate.as_ref());
    for path in pairs.flat_map(|pair| [&pair.certificate, &pair.key]) {
        name(format!("hosts: {}", path.display()), Some(path));
    }
    let read = |path: &Path| digest(&SHA256, &read_file(path).ok()?).as_ref().try_into().ok();
    named.into_iter().map(|(key, path)| (key, read(&path))).collect()
}

/// Maximum number of changed keys that the log names.
const LISTED: usize = 20;
/// Keys of files that are read only at the start.
const TAKE_RESTART: [&str; 1] = ["admin.token_file"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_names_the_first_changed_keys_and_counts_the_others() {
        let keys = (0..25_000).map(|number| format!("hosts.{number}")).collect::<Vec<_>>();
        assert_eq!(listed(&[]), "nothing has changed");
        assert_eq!(listed(&keys[..2]), "hosts.0, hosts.1");
        assert!(listed(&keys[..LISTED]).ends_with(", hosts.19"));
        assert!(listed(&keys).ends_with(", hosts.19 and 24980 more"));
    }
}
