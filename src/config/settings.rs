//! The whole configuration: the keys of `politely.yaml`, and values derived from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::display::Whole;
use super::hosts::Hosts;
use super::path_places::PathPlaces;
use super::read::error::Complaint;
use super::read::reader::Reader;
use super::read::sections::Sections;
use super::schema::access::{AccessSettings, User};
use super::schema::file::{
    AdminSettings, CacheSettings, EgressSettings, EvidenceSettings, Fallback, FleetSettings, IdentitySettings,
    LimitSettings, Listener, LogSettings, Mode, OnFleetLoss, OnVisitTime, PaceSettings, RobotsSettings, StoreSettings,
};
use super::schema::host_table::{HostMap, InterceptMode, Override};
use super::schema::intercept::Intercept;
use super::schema::text;
use crate::policy::{Allowlist, Authority, Host, Manners, PolicyOptions, Refusal, UsageModes};
use serde::Deserialize;

/// A whole, valid configuration. `Settings::default()` has the values of `conf/politely.yaml`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Included files, and directories of such files, which override the first file.
    pub(super) include: Vec<PathBuf>,
    pub listen: Vec<Listener>,
    pub admin: AdminSettings,
    pub mode: Mode,
    pub identity: IdentitySettings,
    pub(super) usage: UsageModes,
    pub robots: RobotsSettings,
    pub pace: PaceSettings,
    pub intercept: Intercept,
    pub egress: EgressSettings,
    /// The hosts and methods that may be requested, from `egress`.
    pub listed: Allowlist,
    pub access: AccessSettings,
    pub store: StoreSettings,
    pub cache: CacheSettings,
    pub evidence: EvidenceSettings,
    pub fleet: FleetSettings,
    pub on_fleet_loss: OnFleetLoss,
    /// The entries of the section `hosts`, until the policies are built from them.
    pub(super) overrides: HostMap<Override>,
    /// The policies of all hosts, built from `hosts` and `intercept.hosts`.
    pub hosts: Hosts,
    pub limits: LimitSettings,
    pub log: LogSettings,
    /// The places at which the configuration names files, for faults that are found only when the files are read.
    pub places: PathPlaces,
    pub(super) whole: Whole,
    pub(super) warnings: Vec<Complaint>,
}

impl Settings {
    /// Reads the sections. Derived values are not set yet.
    pub(super) fn read(sections: &mut Sections<'_>) -> Self {
        Self {
            include: sections.read_with("include", |reader| text::many(Reader { base: Path::new(""), ..reader })),
            listen: sections.read_with("listen", |reader| match reader.node.text() {
                // For a text, reports the error for a single listener, which shows how to write a listener.
                Some(_) => Listener::deserialize(reader).map(|one| vec![one]),
                None => Vec::deserialize(reader),
            }),
            admin: sections.read("admin"),
            mode: sections.read("mode"),
            identity: sections.read("identity"),
            usage: sections.read("usage"),
            robots: sections.read("robots"),
            pace: sections.read("pace"),
            intercept: sections.read("intercept"),
            egress: sections.read("egress"),
            listed: Allowlist::default(),
            access: sections.read("access"),
            store: sections.read("store"),
            cache: sections.read("cache"),
            evidence: sections.read("evidence"),
            fleet: sections.read("fleet"),
            on_fleet_loss: sections.read("on_fleet_loss"),
            overrides: sections.read("hosts"),
            hosts: Hosts::default(),
            limits: sections.read("limits"),
            log: sections.read("log"),
            places: PathPlaces::default(),
            whole: Whole::default(),
            warnings: Vec::new(),
        }
    }

    /// Warnings about settings that are valid but may not be meant.
    pub fn warnings(&self) -> &[Complaint] {
        &self.warnings
    }

    /// Adds warnings that are known only once other files have been read.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = Complaint>) {
        self.warnings.extend(warnings);
    }

    /// Logs [`warnings`](Self::warnings).
    pub fn log_warnings(&self) {
        for warning in &self.warnings {
            tracing::warn!(hint = warning.hint, "configuration: {}", warning.what);
        }
    }

    /// The user of this name.
    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.access.users.iter().find(|user| user.name.as_ref() == name).cloned()
    }

    /// The hosts with this user's overrides, if any.
    pub fn hosts_of<'a>(&'a self, user: Option<&'a User>) -> &'a Hosts {
        user.and_then(|user| user.hosts.as_ref()).unwrap_or(&self.hosts)
    }

    /// Checks the general allowlist and the user's.
    pub fn check_listed(&self, user: Option<&User>, host: &Host, method: &str) -> Result<(), Refusal> {
        let mut lists = [&self.listed].into_iter().chain(user.map(|user| &user.listed));
        lists.try_for_each(|listed| listed.check(host, method)).map_err(|why| Refusal::EgressDenied { why })
    }

    /// The refusal of this authority, if the configuration alone refuses all of its pages.
    pub fn refuses(&self, user: Option<&User>, authority: &Authority, method: &str) -> Option<Refusal> {
        let policy = self.hosts_of(user).get(authority.host());
        let is_denied = policy.intercept == InterceptMode::Deny && authority.is_https();
        match is_denied {
            true => Some(policy.https_denied()),
            false => self.check_listed(user, authority.host(), method).err(),
        }
    }

    /// The `User-Agent` to send instead of the one in this user's requests. `None`: the requests keep their own.
    pub fn user_agent<'a>(&'a self, user: Option<&'a User>) -> Option<&'a str> {
        user.and_then(|user| user.user_agent.as_deref()).or(self.identity.user_agent.as_deref())
    }

    /// The `User-Agent` of robots.txt fetches. Names the crawler and the contact, so that the site's owner knows who reads the file and
    /// whom to contact. `version`: this program's version.
    pub fn own_user_agent(&self, version: &str) -> String {
        let identity = &self.identity;
        if let Some(agent) = &identity.user_agent {
            return agent.clone();
        }
        // Written without `format!`, as every fetch runs it.
        let mut agent = String::new();
        identity.product_tokens.iter().for_each(|token| agent.extend([token.as_ref(), " "]));
        agent.extend(["politely/", version]);
        if !identity.contact.is_empty() {
            agent.extend([" (+", &identity.contact, ")"]);
        }
        agent
    }

    /// The configuration as JSON text without secrets, and the SHA-256 of this text.
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
            policy_tokens: identity.policy_tokens.each().collect(),
            usage: *usage,
            manners: pace.manners().over(&Manners::default()),
            allow_long_unreachable: robots.on_long_unreachable == Fallback::Allow,
            enforce_visit_time: robots.visit_time == OnVisitTime::Enforce,
            disallow_unavailable: robots.on_unavailable == Fallback::Disallow,
            disallow_auth_error: robots.on_auth_error == Fallback::Disallow,
            paths: robots.paths,
        }
    }
}
