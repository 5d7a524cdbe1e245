//! Checks that are common to all answers made by the proxy itself.

use super::message::Response;
use serde_json::Value;

/// Checks that the response is this refusal in each place that reports it. Returns the problem details.
#[track_caller]
pub fn assert_refused(response: &Response, status: u16, error: &str, kind: &str) -> Value {
    assert_eq!(response.status(), status, "{:?} {}", response.head, response.text());
    assert_eq!(response.head.proxy_error().as_deref(), Some(error), "{:?}", response.head);
    let problem = response.problem();
    assert_problem(&problem, status, kind);
    // Tools that use HTTP/1 often show only the status line.
    if let Some(line) = response.head.start_line.strip_prefix(b"HTTP/1.1 ") {
        let title = problem["title"].as_str().unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(line), format!("{status} {title}"));
    }
    problem
}

/// Checks the members that RFC 9457 defines.
#[track_caller]
pub fn assert_problem(problem: &Value, status: u16, kind: &str) {
    let uri = problem["type"].as_str().unwrap_or_else(|| panic!("no type: {problem}"));
    assert!(uri.ends_with(kind), "{uri} is not {kind}: {problem}");
    assert_eq!(problem["status"], status, "{problem}");
    for member in ["title", "detail"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "no {member}: {problem}");
    }
}
