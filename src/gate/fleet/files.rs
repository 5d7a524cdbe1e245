//! The files of copies at the fleet's server. A file that is not short is stored once for all authorities that have it: most files are one
//! of a few that content management systems write. It has a key of its own, which in a cluster may be on another node than the copies.

use super::Fleet;
use super::link::ServerLink;
use super::reach::ServerLost;
use crate::gate::store::FileDigest;
use crate::policy::freshness::LAST_GOOD_USE;
use redis::cmd;

impl Fleet {
    /// The file with this digest, as it was packed. `None`: it is missing, or longer than this instance reads.
    pub async fn file(&self, name: FileDigest) -> Option<Vec<u8>> {
        let link = self.copies()?;
        let most = link.longest_copy();
        let file: Vec<u8> = link.call(cmd("GETRANGE").arg(key(name)).arg(0).arg(most)).await.ok()?;
        (1..=most).contains(&file.len()).then_some(file)
    }
}

impl ServerLink {
    /// Stores a packed file, in place of one that may be damaged.
    pub(super) async fn keep_file(&self, name: FileDigest, file: &[u8]) -> Result<(), ServerLost> {
        self.call(cmd("SET").arg(key(name)).arg(file).arg("EX").arg(LAST_GOOD_USE.as_secs())).await
    }
}

fn key(name: FileDigest) -> String {
    format!("politely:text:{:032x}", u128::from_be_bytes(name))
}
