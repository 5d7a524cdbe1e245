//! The whole configuration: the keys of `politely.yaml`, and values derived from them.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use super::hosts::Hosts;
use super::read::error::Complaint;
use super::shown::Whole;
use super::written::access::AccessSettings;
use super::written::file::{
    AdminSettings, EgressSettings, EvidenceSettings, Fallback, FleetSettings, IdentitySettings, LimitSettings,
    Listener, LogSettings, Mode, OnFleetLoss, OnVisitTime, PaceSettings, RobotsSettings, StoreSettings,
};
use super::written::host_table::{HostMap, Override, Usage};
use super::written::intercept::Intercept;
use super::written::text;
use crate::policy::{Allowlist, Manners, PolicyOptions, UsageModes};

/// A complete, valid configuration. `Settings::default()` equals `conf/politely.yaml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Files, or directories of files, that override this one.
    #[serde(deserialize_with = "text::many")]
    pub(super) include: Vec<PathBuf>,
    pub listen: Vec<Listener>,
    pub admin: AdminSettings,
    pub mode: Mode,
    pub identity: IdentitySettings,
    pub(super) usage: Usage,
    pub robots: RobotsSettings,
    pub pace: PaceSettings,
    pub intercept: Intercept,
    pub egress: EgressSettings,
    /// What may be requested, from `egress`.
    #[serde(skip)]
    pub listed: Allowlist,
    pub access: AccessSettings,
    pub store: StoreSettings,
    pub evidence: EvidenceSettings,
    pub fleet: FleetSettings,
    pub on_fleet_loss: OnFleetLoss,
    /// The source of `hosts`.
    #[serde(rename = "hosts")]
    pub(super) overrides: HostMap<Override>,
    /// Overrides for some hosts, including `intercept.hosts`.
    #[serde(skip)]
    pub hosts: Hosts,
    pub limits: LimitSettings,
    pub log: LogSettings,
    #[serde(skip)]
    pub(super) whole: Whole,
    #[serde(skip)]
    pub(super) warnings: Vec<Complaint>,
}

impl Settings {
    /// Settings that are valid but may not be intended.
    pub fn warnings(&self) -> &[Complaint] {
        &self.warnings
    }

    /// The configuration as shown, as text, and its SHA-256.
    pub fn kept(&self) -> &(Arc<str>, [u8; 32]) {
        &self.whole.kept
    }

    /// The whole configuration as JSON in the form of the file, without secrets.
    pub fn shown(&self) -> serde_json::Value {
        self.whole.shown()
    }

    /// The options for decisions about every host.
    pub(super) fn options(&self) -> PolicyOptions {
        let Self { mode, identity, usage, robots, pace, .. } = self;
        PolicyOptions {
            report_only: *mode == Mode::Report,
            product_tokens: identity.product_tokens.clone(),
            user_agent: identity.user_agent.clone(),
            purposes: identity.purpose.clone(),
            policy_tokens: identity.policy_tokens(),
            usage: usage.over(UsageModes::default()),
            manners: pace.manners().over(&Manners::default()),
            allow_long_unreachable: robots.on_long_unreachable == Fallback::Allow,
            enforce_visit_time: robots.visit_time == OnVisitTime::Enforce,
            disallow_unavailable: robots.on_unavailable == Fallback::Disallow,
            disallow_auth_error: robots.on_auth_error == Fallback::Disallow,
            paths: robots.paths,
        }
    }
}
