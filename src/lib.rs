//! politely: a forward proxy that makes any crawler obey robots.txt. Other programs can use its parts as a library.
//!
//! **The engine alone** parses robots.txt and decides what it allows ([`robots`]). It needs neither I/O nor the feature `proxy`:
//!
//! ```
//! use politely::robots::RobotsTxt;
//!
//! let robots = RobotsTxt::parse(b"User-agent: *\nDisallow: /private\n");
//! assert!(!robots.rules_for(&["ExampleBot"]).check("/private/page").is_allowed());
//! ```
//!
//! **The gate in a program** fetches and caches robots.txt, and paces requests to each host ([`gate`]):
//!
//! ```
//! # #[cfg(feature = "proxy")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use politely::{config::Settings, policy::{Authority, Request}, server};
//!
//! let gate = server::gate_alone(Settings::parse("example", "mode: enforce\n")?)?;
//! let authority = Authority::from_url("http://127.0.0.1:9")?;
//! // An admitted request gets a permit, to be kept until the request ends. Requests to this machine are refused unless `egress` allows
//! // them.
//! let refusal = gate.admit(&Request::new(&authority, b"/page"), None).await.err();
//! assert_eq!(refusal.map(|refusal| refusal.slug()), Some("egress-denied"));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "proxy"))]
//! # fn main() {}
//! ```
//!
//! **The embedded proxy** serves within a program's own runtime ([`server`]):
//!
//! ```
//! # #[cfg(feature = "proxy")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use politely::{config::Settings, server};
//!
//! # let directory = tempfile::tempdir()?;
//! # let place = directory.path().display();
//! let text = format!(
//!     "listen: [{{ address: 127.0.0.1:0 }}]\nadmin: {{ address: off }}\n\
//!      intercept: {{ ca: {{ directory: {place}/ca }} }}\nstore: {{ directory: {place}/store }}\n"
//! );
//! let proxy = server::start(Settings::parse("example", &text)?).await?;
//! println!("http_proxy=http://{}", proxy.addresses()[0]);
//! proxy.shutdown().await;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "proxy"))]
//! # fn main() {}
//! ```
//!
//! The documented API follows semantic versioning. Hidden modules do not: they are public for this project's tests.
//!
//! # The path of a request
//!
//! `proxy::client` accepts a connection, reads the request's head ([`http1`]) and handles CONNECT. `proxy::exchange` asks
//! [`gate::Gate::admit`], which loads the authority's entry, lets [`policy`] decide by the rules of [`robots`] and keeps the host's pace.
//! Then [`upstream`] provides a connection and `exchange::transfer` moves both bodies, or `proxy::respond` answers.
//!
//! Imports go down only: main → cli → server → admin → proxy → gate → {upstream, tls} → {http1, evidence, signing, fair_places} → config →
//! policy → robots. Without the feature `proxy`, only the pure modules build ([`robots`], [`policy`] and [`http1`]), without I/O crates.

#[cfg(all(feature = "proxy", not(target_os = "linux")))]
compile_error!("the feature `proxy` needs Linux; on other systems, build without it (`--no-default-features`)");

#[cfg(feature = "proxy")]
mod admin;
#[cfg(feature = "proxy")]
mod cli;
#[cfg(feature = "proxy")]
pub mod config;
#[cfg(feature = "proxy")]
#[doc(hidden)]
pub mod evidence;
#[cfg(feature = "proxy")]
mod fair_places;
#[cfg(feature = "proxy")]
pub mod gate;
#[cfg(feature = "proxy")]
#[doc(hidden)]
pub mod histogram;
#[doc(hidden)]
pub mod http1;
pub mod policy;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(feature = "proxy")]
mod rfc3339;
pub mod robots;
#[cfg(feature = "proxy")]
pub mod server;
#[cfg(feature = "proxy")]
#[doc(hidden)]
pub mod signing;
#[cfg(feature = "proxy")]
mod telemetry;
#[cfg(test)]
mod tests;
#[cfg(feature = "proxy")]
#[doc(hidden)]
pub mod tls;
#[cfg(feature = "proxy")]
mod tls_provider;
#[cfg(feature = "proxy")]
mod tls_words;
#[cfg(feature = "proxy")]
#[doc(hidden)]
pub mod upstream;

/// The command `politely`.
#[cfg(feature = "proxy")]
#[doc(hidden)]
pub use cli::main;
