//! Room for connections: each takes a file descriptor, one towards the origin a second, and in HTTP/2 more where several streams are
//! under way.

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

/// For how many connections of clients there are descriptors: two for each, and one for each of [`room_for_streams`].
pub(crate) fn room_for_clients(settings: &Settings) -> usize {
    (room(settings) * 2 / 5).max(1)
}

/// For how many streams under way there are, beside the first of each HTTP/2 connection: each may have a connection to an origin.
pub(crate) fn room_for_streams(settings: &Settings) -> usize {
    (room(settings) / 5).max(1)
}

/// What requests may have: all but one for each fetch of robots.txt, which may go on after its client has gone, and some for all else.
fn room(settings: &Settings) -> usize {
    let files =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    files.saturating_sub(OWN + most_fetches(settings)).min(usize::MAX / 2)
}

/// Listeners, the store, logs, what a fleet takes.
const OWN: usize = 48;
/// One browser opens about as many.
const FEW: usize = 100;
