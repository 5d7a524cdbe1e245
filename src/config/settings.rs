//! What is meant: the configuration as everything above reads it.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use super::hosts::Hosts;
use super::read::error::Complaint;
use super::shown::Whole;
use super::written::file::{
    self, AdminSettings, EgressSettings, EvidenceSettings, IdentitySettings, LimitSettings, Listener, LogSettings,
    Mode, OnFleetLoss, PaceSettings, RobotsSettings, StoreSettings,
};
use super::written::host_table::InterceptMode;
use super::written::manners;
use super::written::secrets::{Secret, SecretUrl};
use super::written::values::{HeaderText, Network};
use crate::policy::{Budget, Host, Listed};
use crate::robots::ProductToken;

/// A whole configuration, right in itself. `Settings::default()` is what `conf/politely.yaml` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub listen: Vec<Listener>,
    pub admin: AdminSettings,
    pub mode: Mode,
    pub identity: IdentitySettings,
    pub robots: RobotsSettings,
    pub pace: PaceSettings,
    pub intercept: Intercept,
    pub egress: EgressSettings,
    /// What may be asked at all: of `egress`.
    pub listed: Listed,
    pub access: AccessSettings,
    pub store: StoreSettings,
    pub evidence: EvidenceSettings,
    pub fleet: Option<FleetSettings>,
    /// What is otherwise for some hosts, `intercept.hosts` included.
    pub hosts: Hosts,
    pub limits: LimitSettings,
    pub log: LogSettings,
    pub(super) whole: Whole,
    pub(super) warnings: Vec<Complaint>,
}

/// What happens to `CONNECT`, for hosts without a word of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Intercept {
    pub default: InterceptMode,
    pub ca: CaSource,
    /// Hosts whose certificates are kept ready.
    pub leaf_cache: usize,
    /// By which clients find the certificate, through the proxy.
    pub setup_host: Host,
}

/// Where the certificate authority comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaSource {
    /// Our own, made on first use. `None`: below the state directory.
    Directory(Option<PathBuf>),
    /// The operator's: a PEM file with the certificate, which intermediates may follow, and its key.
    Files { certificate: PathBuf, key: PathBuf },
}

/// Who may use the proxy. Neither: anybody who reaches it, so loopback only.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AccessSettings {
    pub clients: Vec<Network>,
    pub users: Vec<Arc<User>>,
}

/// Who shows a password, and what holds for their requests.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct User {
    pub name: HeaderText,
    /// The password's hash.
    pub password: Secret,
    /// In place of `identity.product_tokens`.
    pub product_tokens: Vec<ProductToken>,
    /// In place of `Settings::hosts`, which these were laid over. `None`: nothing is otherwise for this user.
    pub hosts: Option<Hosts>,
    /// What they may ask, of what all may.
    pub listed: Listed,
    /// Connections at a time.
    pub max_connections: Option<NonZeroUsize>,
    /// Requests that may wait at a time.
    pub max_waiting: Option<usize>,
    /// What they may ask of all hosts together.
    pub budget: Option<Budget>,
}

impl User {
    pub(super) fn of(user: file::WrittenUser, hosts: &Hosts) -> Self {
        let own = user.hosts.iter().next().is_some();
        Self {
            name: user.name,
            password: user.password,
            product_tokens: user.product_tokens,
            hosts: own.then(|| hosts.overlaid(user.hosts)),
            listed: user.egress.listed(),
            max_connections: user.max_connections,
            max_waiting: user.max_waiting,
            budget: user.budget.and_then(manners::WrittenBudget::meant),
        }
    }
}

/// The server that all instances share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetSettings {
    pub url: SecretUrl,
    pub on_loss: OnFleetLoss,
}

impl Settings {
    /// What is no fault but may not be meant.
    pub fn warnings(&self) -> &[Complaint] {
        &self.warnings
    }

    /// What is shown, as text, and its SHA-256.
    pub fn kept(&self) -> &(Arc<str>, [u8; 32]) {
        self.whole.kept()
    }

    /// All of it as JSON in the form of the file, without its secrets.
    pub fn shown(&self) -> serde_json::Value {
        self.whole.shown()
    }
}
