//! The configuration: read strictly from `politely.yaml` and the environment, all faults told at once with their places,
//! and handed on as typed [`Settings`]. Called by `server` and `cli`; everything above reads its own section.

mod environment;
mod error;
mod file;
mod hosts;
mod paths;
mod reader;
mod settings;
mod source;
pub mod units;
mod validate;
mod values;
mod words;

pub use error::{Complaint, ConfigErrors, Fault, Place};
pub use file::{
    Access, Admin, Egress, Fallback, Identity, InterceptMode, Limits, Listener, ListenerTls, Log, LogFormat, LogLevel,
    Mode, OnFleetLoss, OnVisitTime, Pace, Robots, RobotsOverride, Store, Subresources, User,
};
pub use hosts::{HostPattern, HostPolicy, Hosts};
pub use paths::{cache_directory, state_directory};
pub use settings::{CaSource, Fleet, Intercept, Settings};
pub use values::{AccessLog, ListenAddress, Network, PathPattern, PortRange, Secret, SecretUrl, Token};
