//! The configuration: read strictly from `politely.yaml` and the environment, all faults told at once with their places,
//! and handed on as typed [`Settings`]. Called by `server` and `cli`; everything above reads its own section.

mod environment;
mod error;
mod file;
mod paths;
mod reader;
mod settings;
mod source;
pub mod units;
mod validate;
mod values;

pub use error::{Complaint, ConfigErrors, Fault, Place};
pub use file::{
    Access, Admin, Egress, Fallback, Identity, InterceptMode, Limits, Listener, ListenerTls, Log, LogFormat, LogLevel,
    Mode, OnFleetLoss, Override, Pace, PaceKey, Precedence, Robots, RobotsOverride, Store, Subresources, User,
    UserAgentMatch, VisitTime,
};
pub use paths::state_directory;
pub use settings::{CaSource, Fleet, Intercept, Settings};
pub use values::{AccessLog, ListenAddress, Network, PortRange, Secret, SecretUrl, Token};
