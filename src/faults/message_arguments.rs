//! The arguments of a fault on one message, in words for `harness list faults` and errors.

/// An argument of this form, with an example, and words about its own parts. A fault that acts at replies takes `accepted`, too.
macro_rules! argument {
    (of replies, $form:literal, $own:literal) => {
        argument!(
            $form,
            concat!($own, ":accepted counts only accepted messages (the reply is no error, nil or zero); ")
        )
    };
    ($form:literal, $own:expr) => {
        concat!(
            "MESSAGE[:K][:WHOSE]",
            $form,
            ": K is the number of the message (default: drawn), WHOSE is anyone, holder, worker, releaser, waiter or idle; ",
            $own,
            "any:57 is the 57th of all messages except pings (default: each message that clients send, in each state, by turns)"
        )
    };
}

pub(super) const DROP_REQUEST: &str = argument!(
    "[:refuse=TIME], such as create:2:waiter:refuse=2s",
    "refuse=TIME refuses the client for that time afterwards; "
);
pub(super) const DROP_REPLY: &str = argument!(
    of replies,
    "[:accepted][:refuse=TIME], such as create:2:waiter:refuse=2s",
    "refuse=TIME refuses the client for that time afterwards; "
);
pub(super) const DELAY_REQUEST: &str = argument!(
    "[:TIME], such as DEL:1:releaser:3s",
    "TIME is the delay (default: a lease and a quarter of it); "
);
pub(super) const DELAY_REPLY: &str = argument!(
    of replies,
    "[:accepted][:TIME], such as DEL:1:releaser:3s",
    "TIME is the delay of its reply (default: a lease and a quarter of it); "
);
pub(super) const KILL: &str = argument!(of replies, "[:accepted], such as SETNX:1:waiter", "");
