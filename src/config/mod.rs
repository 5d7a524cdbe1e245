//! The configuration: reads `politely.yaml` and the environment strictly into typed [`Settings`], and reports the faults of all sections at
//! once, each with its place.

mod addresses;
mod admin_token;
mod byte_lock;
mod changes;
mod comparison;
mod display;
mod files;
mod foreign;
mod host_policy;
mod hosts;
mod instance;
mod layers;
mod load;
mod overrides;
mod path_places;
mod read;
mod replacements;
mod schema;
mod settings;
mod steps;
mod unusable_file;
mod validate;
mod warnings;
mod whole_file;

pub use admin_token::AdminToken;
pub(crate) use byte_lock::control_lock;
pub use changes::Changes;
pub use display::withheld_variables;
pub(crate) use files::{
    LOCK, NO_LOCK, check_lock, is_at, is_same, open_file, open_lock, open_lock_file, open_ours, open_own, open_private,
};
pub use files::{cache_directory, private_directory, private_folder, state_directory, warn_of_foreign, warn_of_others};
pub(crate) use foreign::{controller, is_ours, refuse_foreign};
pub use host_policy::HostPolicy;
pub use hosts::Hosts;
pub use instance::{instance_name, keep_instance_name};
pub use layers::{Differences, Layers};
pub use overrides::{OverrideInForce, overrides};
pub use path_places::PathPlaces;
pub use read::environment::KeyArgument;
pub use read::error::{Complaint, ConfigErrors, ConfigFault, ConfigPlace};
pub use replacements::WrittenKey;
pub use schema::access::{AccessSettings, CertificateName, User};
pub use schema::defaults::DEFAULTS;
pub use schema::file::{
    AdminSettings, CacheSettings, EgressSettings, EvidenceSettings, Fallback, FleetSettings, IdentitySettings,
    LimitSettings, Listener, ListenerTls, LogFormat, LogLevel, LogSettings, Mode, OnFleetLoss, OnVisitTime,
    PaceSettings, RobotsSettings, StoreSettings, Subresources,
};
pub use schema::host_table::InterceptMode;
pub use schema::intercept::{CaSource, Intercept};
pub use schema::origin_tls::{CertificatePair, OriginTls, Pin, TlsVersions};
pub use schema::secrets::{HashCost, Secret, SecretUrl};
pub use schema::signature::{Agent, AgentForm, SignWhen, SignatureSettings};
pub use schema::units;
pub use schema::values::{
    AccessLog, DenyEntry, HeaderText, InstanceName, ListenAddress, Network, PathPattern, PortRange,
};
pub use settings::Settings;
pub use unusable_file::UnusableFile;
pub(crate) use unusable_file::{MORE_FILES, MORE_PROCESSES, hint_for};
pub(crate) use whole_file::{
    as_line, read_argument, read_file, read_ours, read_whole, rewrite, unnamed, write_once, write_whole,
};
