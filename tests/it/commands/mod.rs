//! The command line, as somebody types it.

mod agents;
mod exit_codes;
mod explain;
mod getting_started;
mod lint;
mod running;
mod setup;
mod supervised;

const ROBOTS: &str = "User-agent: FooBot\nDisallow: /foo\n\nUser-agent: *\nCrawl-delay: 2\nDisallow: /private\nSitemap: http://a.localhost/s.xml\n";
