//! The files that apply to all pages of a site. All are fetched, kept and shared in the same way, by their authority.
//! Pure.

use super::Authority;
use std::fmt;

/// Which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SiteFile {
    /// What may be fetched (RFC 9309).
    Robots,
    /// What may be mined (W3C TDMRep).
    TdmRep,
    /// What uses are licensed (RSL): where its robots.txt says.
    License,
}

impl SiteFile {
    /// All of them.
    pub const COUNT: usize = 3;

    /// Where it is; empty: somewhere else.
    pub fn path(self) -> &'static str {
        match self {
            Self::Robots => "/robots.txt",
            Self::TdmRep => TDM_REP,
            Self::License => "",
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Robots => "robots.txt",
            Self::TdmRep => "tdmrep.json",
            Self::License => "licence file",
        }
    }

    /// The name under which that of an authority is kept and shared.
    pub fn of(self, authority: &Authority) -> SiteFileName<'_> {
        SiteFileName(self, authority)
    }

    /// What such a name is for. `None`: it is none.
    pub fn from_name(name: &str) -> Option<(Self, Authority)> {
        let named = |(file, suffix)| Some((file, name.strip_suffix(suffix)?));
        let found = [(Self::TdmRep, TDM_REP), (Self::License, LICENSE)].into_iter().find_map(named);
        let (file, authority) = found.unwrap_or((Self::Robots, name));
        Some((file, Authority::from_url(authority).ok()?))
    }
}

/// An authority, and its file where that is not robots.txt.
#[derive(Debug, Clone, Copy)]
pub struct SiteFileName<'a>(SiteFile, &'a Authority);

impl fmt::Display for SiteFileName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.fmt(f)?;
        match self.0 {
            SiteFile::Robots => Ok(()),
            SiteFile::TdmRep => f.write_str(TDM_REP),
            SiteFile::License => f.write_str(LICENSE),
        }
    }
}

const TDM_REP: &str = "/.well-known/tdmrep.json";
/// No path of a site: its file may be anywhere.
const LICENSE: &str = "#license";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let authority = Authority::from_url("https://a.example:8443").unwrap();
        for (file, name) in [
            (SiteFile::Robots, "https://a.example:8443"),
            (SiteFile::TdmRep, "https://a.example:8443/.well-known/tdmrep.json"),
            (SiteFile::License, "https://a.example:8443#license"),
        ] {
            assert_eq!(file.of(&authority).to_string(), name);
            assert_eq!(SiteFile::from_name(name), Some((file, authority.clone())));
        }
        assert_eq!(SiteFile::from_name(""), None);
    }
}
