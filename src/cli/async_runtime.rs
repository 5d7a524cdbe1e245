//! What the subcommands run on that talk to others.

use std::io;
use tokio::runtime::{Builder, Runtime};

pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build()
}
