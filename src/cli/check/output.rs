//! The text of `politely check`, and the warnings in it.

use crate::config::Complaint;

/// The lines of the text, and the warnings among them.
pub(super) struct Told {
    pub text: String,
    pub warnings: Vec<Complaint>,
}

impl Told {
    pub fn say(&mut self, line: &str) {
        self.text += &format!("  {line}\n");
    }

    pub fn warn(&mut self, warning: Complaint) {
        self.say(&format!("warning: {}", warning.what));
        if !warning.hint.is_empty() {
            self.say(&format!("  hint: {}", warning.hint));
        }
        self.warnings.push(warning);
    }
}
