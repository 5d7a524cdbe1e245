//! Room for connections: each takes a file descriptor, one towards the origin a second.

use crate::config::Settings;
use crate::gate::most_fetches;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's soft limit on open files to its hard limit, as far as that goes. The soft limit is 1,024 on
/// most systems, for the sake of programs that use select(2). Warns if there is room for few clients even so.
pub(crate) fn raise_limit(settings: &Settings) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    let clients = room_for_clients(settings);
    if clients < FEW {
        let hint = "raise the limit: `ulimit -n`, or `LimitNOFILE` in a systemd unit";
        tracing::warn!(hint, "the limit on open files leaves room for {clients} client connections at a time");
    }
}

/// For how many clients at a time there are descriptors: two for each, one for each fetch of robots.txt, which may go on after its
/// client has gone, and some for all else.
pub(crate) fn room_for_clients(settings: &Settings) -> usize {
    let files =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    (files.saturating_sub(OWN + most_fetches(settings)) / 2).max(1)
}

/// Listeners, the store, logs, what a fleet takes.
const OWN: usize = 48;
/// One browser opens about as many.
const FEW: usize = 100;
