//! The configuration: read strictly from `politely.yaml` and the environment, all faults told at once with their places,
//! and handed on as typed [`Settings`].

mod defaults;
mod environment;
mod error;
mod file;
mod hosts;
mod origin_tls;
mod paths;
mod reader;
mod secrets;
mod settings;
mod shown;
mod source;
mod text;
pub mod units;
mod validate;
mod values;
mod words;

pub use error::{Complaint, ConfigErrors, Fault, Place};
pub use file::{
    Admin, Egress, Fallback, Identity, InterceptMode, Limits, Listener, ListenerTls, Log, LogFormat, LogLevel, Mode,
    OnFleetLoss, OnVisitTime, Pace, Robots, Store, Subresources,
};
pub use hosts::{HostPolicy, Hosts};
pub use origin_tls::{CertificatePair, OriginTls, Pin};
pub use paths::{cache_directory, state_directory};
pub use secrets::{Secret, SecretUrl};
pub use settings::{Access, CaSource, Fleet, Intercept, Settings, User};
pub use values::{AccessLog, Closed, ListenAddress, Network, PathPattern, PortRange, Token};
