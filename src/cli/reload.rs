//! `politely reload`: makes a running proxy reload its configuration, and shows what changed and what needs a restart.

use super::admin_client::AdminArgs;
use super::{CommandError, Format, NO};
use serde_json::Value;
use std::process::ExitCode;

/// Exit code 0: the whole configuration is in force. 1: part of it needs a restart, or it was rejected. 2: no proxy could be asked.
pub(super) fn run(admin: &AdminArgs) -> Result<ExitCode, CommandError> {
    let answer = admin.ask("POST", "/api/v1/reload")?;
    if answer.status != 200 && matches!(admin.format, Format::Text) {
        return Err(refused(answer.body["detail"].as_str().unwrap_or_default()));
    }
    let keys = |name: &str| -> Vec<&str> {
        answer.body[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let (changed, needs_restart) = (keys("changed"), keys("needs_restart"));
    super::print(&match admin.format {
        Format::Json => super::inert_json(&format!("{:#}\n", answer.body)),
        Format::Text => {
            let mut out = match changed.as_slice() {
                [] => "reloaded: nothing has changed\n".to_owned(),
                changed => format!("reloaded: {}\n", changed.join(", ")),
            };
            if !needs_restart.is_empty() {
                out += &format!("needs a restart: {}\n", needs_restart.join(", "));
            }
            for warning in answer.body["warnings"].as_array().into_iter().flatten() {
                let said = |key: &str| super::inert(warning[key].as_str().unwrap_or_default());
                out += &format!("warning: {}\n  hint: {}\n", said("what"), said("hint"));
            }
            out
        }
    })?;
    let is_in_force = answer.status == 200 && needs_restart.is_empty();
    Ok(if is_in_force { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn refused(faults: &str) -> CommandError {
    let message = format!("{}\nnot reloaded: the old configuration stays in force", faults.trim_end());
    CommandError { message, code: ExitCode::from(NO) }
}
