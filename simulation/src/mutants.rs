//! Errors that tests put into the models, to see that the conformance tests find each of them.

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// Whether this error is in the model now; never outside of the tests of this crate.
#[cfg(test)]
pub(crate) fn is_mutant(name: &'static str) -> bool {
    ACTIVE.get() == name
}

#[cfg(not(test))]
pub(crate) const fn is_mutant(_name: &'static str) -> bool {
    false
}

/// Puts an error into the models of this thread while `work` runs.
#[cfg(test)]
pub(crate) fn with_mutant<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    struct Healing;
    impl Drop for Healing {
        fn drop(&mut self) {
            ACTIVE.set("");
        }
    }
    ACTIVE.set(name);
    let _healing = Healing;
    work()
}
