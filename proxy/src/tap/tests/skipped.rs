//! Statements of PostgreSQL that the server skips after an error.

use super::{Observation, Protocol, listen, postgres};

#[test]
fn a_rule_does_not_wait_for_the_answer_to_a_statement_that_is_skipped_after_an_error() {
    let (whats, _) = listen(Protocol::Postgres, &postgres());
    let asked = whats.iter().find_map(|what| match what {
        Observation::Request { number, name } if name.to_string() == "DELETE" => Some(*number),
        _ => None,
    });
    let skipped = whats.iter().filter_map(|what| match what {
        Observation::Unanswered { number } => Some(*number),
        _ => None,
    });
    assert_eq!(skipped.collect::<Vec<u64>>(), Vec::from_iter(asked));
}
