//! What the argument of a fault on one message may say, as `harness list faults` and errors show it.

/// The message that an argument means.
macro_rules! whose {
    () => {
        "the K-th of them (drawn), of anyone, holder, worker, releaser, waiter or idle"
    };
}

/// What an argument of any of these faults may say besides.
macro_rules! besides {
    () => {
        "any:57 is the 57th message of all, pings aside (default: each that clients send, in each state, by turns)"
    };
}

macro_rules! besides_of_replies {
    () => {
        concat!(
            ":accepted counts only those whose replies do not say that nothing was done (no error, nil or zero); ",
            besides!()
        )
    };
}

pub(super) const DROP_REQUEST: &str = concat!(
    "MESSAGE[:K][:WHOSE][:refuse=TIME], such as create:2:waiter:refuse=2s: ",
    whose!(),
    "; then the connection ends, and the client is refused for a time; ",
    besides!()
);
pub(super) const DROP_REPLY: &str = concat!(
    "MESSAGE[:K][:WHOSE][:accepted][:refuse=TIME], such as create:2:waiter:refuse=2s: ",
    whose!(),
    "; then the connection ends, and the client is refused for a time; ",
    besides_of_replies!()
);
pub(super) const DELAY_REQUEST: &str = concat!(
    "MESSAGE[:K][:WHOSE][:TIME], such as DEL:1:releaser:3s: ",
    whose!(),
    ", goes on so much later, a quarter more than the lease unless said; ",
    besides!()
);
pub(super) const DELAY_REPLY: &str = concat!(
    "MESSAGE[:K][:WHOSE][:accepted][:TIME], such as DEL:1:releaser:3s: the reply to ",
    whose!(),
    ", goes on so much later, a quarter more than the lease unless said; ",
    besides_of_replies!()
);
pub(super) const KILL: &str = concat!(
    "MESSAGE[:K][:WHOSE][:accepted], such as SETNX:1:waiter: when ",
    whose!(),
    ", was carried out; ",
    besides_of_replies!()
);
