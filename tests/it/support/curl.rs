//! Runs the real curl.

use super::message::{Head, find};
use std::process::Stdio;

/// The result of a curl run.
#[derive(Debug)]
pub struct Curl {
    /// Its exit code.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
    /// The heads of all responses, including those to CONNECT.
    pub heads: Vec<Head>,
}

impl Curl {
    /// The last response's status.
    pub fn status(&self) -> u16 {
        self.head().status()
    }

    /// The last response's head.
    pub fn head(&self) -> &Head {
        self.heads.last().unwrap_or_else(|| panic!("curl saw no response: {} {}", self.code, self.stderr))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn problem(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Runs curl with `arguments`, without other configuration or proxy; at most 30 seconds.
pub async fn curl(arguments: &[&str]) -> Curl {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let heads = directory.path().join("heads");
    let mut command = tokio::process::Command::new("curl");
    command.arg("-q").args(["-sS", "--max-time", "30", "-D"]).arg(&heads).args(arguments);
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("curl is installed");
    Curl {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        heads: split_heads(&std::fs::read(&heads).unwrap_or_default()),
    }
}

fn split_heads(mut bytes: &[u8]) -> Vec<Head> {
    let mut heads = Vec::new();
    while let Some(end) = find(bytes, b"\r\n\r\n") {
        let (head, rest) = bytes.split_at(end + 4);
        if head.starts_with(b"HTTP/") {
            heads.push(Head::parse(head));
        }
        bytes = rest;
    }
    heads
}
