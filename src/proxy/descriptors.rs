//! File descriptors limit connections: each client connection takes one, its origin connection another, and each
//! further HTTP/2 stream may take one more.

use crate::config::{MORE_FILES, Settings};
use crate::gate::most_fetches;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open files (1,024 on most systems, because of select(2)) to the hard limit. Warns if few
/// clients fit even so.
pub(crate) fn raise_limit(settings: &Settings) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    let clients = room_for_clients(settings);
    if clients < FEW {
        tracing::warn!(
            hint = MORE_FILES,
            "the limit on open files leaves room for {clients} client connections at a time"
        );
    }
}

/// How many client connections fit, if each takes two descriptors and the rest is for [`room_for_streams`].
pub(crate) fn room_for_clients(settings: &Settings) -> usize {
    (room(settings) * 2 / 5).max(1)
}

/// How many HTTP/2 streams fit in addition to the first of each connection: each may need an origin connection.
pub(crate) fn room_for_streams(settings: &Settings) -> usize {
    (room(settings) / 5).max(1)
}

/// Descriptors for requests: the limit minus a reserve and one for each concurrent robots.txt fetch, because a fetch may
/// outlive its client.
fn room(settings: &Settings) -> usize {
    let files =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    files.saturating_sub(OWN + most_fetches(settings)).min(usize::MAX / 2)
}

/// Descriptors reserved for listeners, the store, logs and the fleet.
const OWN: usize = 48;
/// Minimum number of client connections that causes no warning: one browser opens about this many.
const FEW: usize = 100;
