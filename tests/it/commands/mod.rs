//! The command line, as somebody types it.

mod agents;
mod bypass;
mod exit_codes;
mod explain;
mod lint;
mod running;
mod samples;
mod setup;
mod supervised;

const ROBOTS: &str = "User-agent: FooBot\nDisallow: /foo\n\nUser-agent: *\nCrawl-delay: 2\nDisallow: /private\nSitemap: http://a.localhost/s.xml\n";
