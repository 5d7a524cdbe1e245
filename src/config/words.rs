//! The words for choices whose types live in the layers below, which know nothing of configurations. Called by `file`.

use serde::Deserialize;

use crate::{policy, robots};

#[derive(Deserialize)]
#[serde(remote = "robots::UserAgentMatch", rename_all = "kebab-case")]
pub(super) enum UserAgentMatch {
    Exact,
    Prefix,
    Substring,
}

#[derive(Deserialize)]
#[serde(remote = "robots::Precedence", rename_all = "kebab-case")]
pub(super) enum Precedence {
    MostSpecific,
    FirstMatch,
}

#[derive(Deserialize)]
#[serde(remote = "policy::Paths", rename_all = "kebab-case")]
pub(super) enum Paths {
    AsServed,
    AsSent,
}

#[derive(Deserialize)]
#[serde(remote = "policy::KeyBy", rename_all = "kebab-case")]
pub(super) enum KeyBy {
    Host,
    Site,
    Address,
}
