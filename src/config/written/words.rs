//! The words for choices whose types live in the layers below, which know nothing of configurations.

use serde::{Deserialize, Deserializer};

use crate::{policy, robots};

#[derive(Deserialize)]
#[serde(remote = "robots::UserAgentMatch", rename_all = "kebab-case")]
pub(in crate::config) enum UserAgentMatchDef {
    Exact,
    Prefix,
    Substring,
}

#[derive(Deserialize)]
#[serde(remote = "robots::Precedence", rename_all = "kebab-case")]
pub(in crate::config) enum PrecedenceDef {
    MostSpecific,
    FirstMatch,
}

#[derive(Deserialize)]
#[serde(remote = "policy::Paths", rename_all = "kebab-case")]
pub(in crate::config) enum PathsDef {
    AsServed,
    AsSent,
}

#[derive(Deserialize)]
#[serde(remote = "policy::KeyBy", rename_all = "kebab-case")]
pub(in crate::config) enum KeyByDef {
    Host,
    Site,
    Address,
}

#[derive(Deserialize)]
#[serde(remote = "policy::Period", rename_all = "kebab-case")]
pub(in crate::config) enum PeriodDef {
    Day,
    Hour,
}

#[derive(Deserialize)]
#[serde(remote = "policy::RobotsOverride", rename_all = "kebab-case")]
enum RobotsOverrideDef {
    Enforce,
    Ignore,
    Report,
}

/// For `#[serde(deserialize_with)]` on what is `None` where it is not written.
pub(in crate::config) fn some_robots_override<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<policy::RobotsOverride>, D::Error> {
    RobotsOverrideDef::deserialize(deserializer).map(Some)
}
