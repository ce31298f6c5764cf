//! Assertions of tests about the texts of reports.

/// Fails with the whole text unless it contains all of these parts.
#[track_caller]
pub fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
