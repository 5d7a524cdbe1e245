//! What is meant: the configuration as everything above reads it.

use std::sync::Arc;

use super::hosts::Hosts;
use super::read::error::Complaint;
use super::shown::Whole;
use super::written::access::AccessSettings;
use super::written::file::{
    AdminSettings, EgressSettings, EvidenceSettings, IdentitySettings, LimitSettings, Listener, LogSettings, Mode,
    OnFleetLoss, PaceSettings, RobotsSettings, StoreSettings,
};
use super::written::intercept::Intercept;
use super::written::secrets::SecretUrl;
use crate::policy::Listed;

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
    /// The server that all instances share.
    pub fleet: Option<SecretUrl>,
    pub on_fleet_loss: OnFleetLoss,
    /// What is otherwise for some hosts, `intercept.hosts` included.
    pub hosts: Hosts,
    pub limits: LimitSettings,
    pub log: LogSettings,
    pub(super) whole: Whole,
    pub(super) warnings: Vec<Complaint>,
}

impl Settings {
    /// What is no fault but may not be meant.
    pub fn warnings(&self) -> &[Complaint] {
        &self.warnings
    }

    /// What is shown, as text, and its SHA-256.
    pub fn kept(&self) -> &(Arc<str>, [u8; 32]) {
        &self.whole.kept
    }

    /// All of it as JSON in the form of the file, without its secrets.
    pub fn shown(&self) -> serde_json::Value {
        self.whole.shown()
    }
}
