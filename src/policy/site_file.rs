//! The files that apply to a whole site. All are fetched, stored and shared in the same way, identified by authority; a licence file also
//! by its URL. Pure.

use super::Authority;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A kind of site file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SiteFile {
    /// robots.txt: which pages may be fetched (RFC 9309).
    Robots,
    /// tdmrep.json: which pages may be mined (W3C TDMRep).
    TdmRep,
    /// The licence file: which uses are licensed (RSL), at a URL that robots.txt or an answer names. Holds a digest of this URL, so that
    /// a copy from another URL does not count.
    License([u8; 8]),
}

impl SiteFile {
    /// Number of kinds.
    pub const COUNT: usize = 3;

    /// The licence file at this URL.
    pub fn license(url: &str) -> Self {
        // If another version of Rust computes another digest, the file is fetched again.
        let mut hasher = DefaultHasher::new();
        url.hash(&mut hasher);
        Self::License(hasher.finish().to_be_bytes())
    }

    /// Index of this kind in arrays of length [`COUNT`](Self::COUNT).
    pub fn kind(self) -> usize {
        match self {
            Self::Robots => 0,
            Self::TdmRep => 1,
            Self::License(_) => 2,
        }
    }

    /// The path of the file at its authority; empty for a licence file, which may be anywhere.
    pub fn path(self) -> &'static str {
        match self {
            Self::Robots => "/robots.txt",
            Self::TdmRep => TDM_REP,
            Self::License(_) => "",
        }
    }

    /// The name as shown to people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Robots => "robots.txt",
            Self::TdmRep => "tdmrep.json",
            Self::License(_) => "licence file",
        }
    }

    /// The name under which an authority's file is stored and shared.
    pub fn of(self, authority: &Authority) -> SiteFileName<'_> {
        SiteFileName(self, authority)
    }

    /// Parses the name of a stored file. `None`: the text is not such a name.
    pub fn from_name(name: &str) -> Option<(Self, Authority)> {
        let tdmrep = || Some((Self::TdmRep, name.strip_suffix(TDM_REP)?));
        let license = || {
            let (authority, digest) = name.split_once(LICENSE)?;
            Some((Self::License(u64::from_str_radix(digest, 16).ok()?.to_be_bytes()), authority))
        };
        let (file, authority) = tdmrep().or_else(license).unwrap_or((Self::Robots, name));
        Some((file, Authority::from_url(authority).ok()?))
    }
}

/// The name of a site's file: the authority, and the kind of file unless it is robots.txt.
#[derive(Debug, Clone, Copy)]
pub struct SiteFileName<'a>(SiteFile, &'a Authority);

impl fmt::Display for SiteFileName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.fmt(f)?;
        match self.0 {
            SiteFile::Robots => Ok(()),
            SiteFile::TdmRep => f.write_str(TDM_REP),
            SiteFile::License(url) => write!(f, "{LICENSE}{:016x}", u64::from_be_bytes(url)),
        }
    }
}

const TDM_REP: &str = "/.well-known/tdmrep.json";
/// Stands for the path in the name of a licence file, which may be at any URL. No path contains this text.
const LICENSE: &str = "#license-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_file_names_round_trip() {
        let authority = Authority::from_url("https://a.example:8443").unwrap();
        for (file, name) in [
            (SiteFile::Robots, "https://a.example:8443"),
            (SiteFile::TdmRep, "https://a.example:8443/.well-known/tdmrep.json"),
            (SiteFile::License([0, 1, 2, 3, 4, 5, 6, 7]), "https://a.example:8443#license-0001020304050607"),
        ] {
            assert_eq!(file.of(&authority).to_string(), name);
            assert_eq!(SiteFile::from_name(name), Some((file, authority.clone())));
        }
        assert_eq!(SiteFile::from_name(""), None);
    }
}
