//! Errors that tests put into the models, to see that the conformance tests find each of them.

/// Whether this error is in the model now; never outside of the tests of this crate.
pub(crate) const fn is_mutant(_name: &'static str) -> bool {
    false
}
