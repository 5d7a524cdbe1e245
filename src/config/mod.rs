//! The configuration: read strictly from `politely.yaml` and the environment, all faults told at once with their places,
//! and handed on as typed [`Settings`].

mod admin_token;
mod changes;
mod hosts;
mod instance;
mod load;
mod paths;
mod read;
mod settings;
mod shown;
mod validate;
mod written;

pub use admin_token::AdminToken;
pub use changes::Changes;
pub use hosts::{HostPolicy, Hosts};
pub use instance::{instance_name, keep_instance_name};
pub use paths::{cache_directory, give_to_owner, private_directory, state_directory};
pub use read::error::{Complaint, ConfigErrors, Fault, Place};
pub use settings::{Access, CaSource, Fleet, Intercept, Settings, User};
pub use shown::DEFAULTS;
pub use written::file::{
    Admin, Egress, Evidence, Fallback, Identity, Limits, Listener, ListenerTls, Log, LogFormat, LogLevel, Mode,
    OnFleetLoss, OnVisitTime, Pace, Robots, Store, Subresources,
};
pub use written::host_table::InterceptMode;
pub use written::origin_tls::{CertificatePair, OriginTls, Pin};
pub use written::secrets::{Secret, SecretUrl};
pub use written::signature::{Agent, AgentForm, SignWhen, Signature};
pub use written::units;
pub use written::values::{AccessLog, Closed, InstanceName, ListenAddress, Network, PathPattern, PortRange, Token};
