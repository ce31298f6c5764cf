//! The arguments of a fault on one message, in words for `harness list faults` and errors.

/// The parts of an argument that select a message.
macro_rules! whose {
    () => {
        "K is the number of the message (default: drawn), WHOSE is anyone, holder, worker, releaser, waiter or idle"
    };
}

/// The further arguments of all these faults.
macro_rules! besides {
    () => {
        "any:57 is the 57th of all messages except pings (default: each message that clients send, in each state, by turns)"
    };
}

macro_rules! besides_of_replies {
    () => {
        concat!(
            ":accepted counts only accepted messages (the reply is no error, nil or zero); ",
            besides!()
        )
    };
}

pub(super) const DROP_REQUEST: &str = concat!(
    "MESSAGE[:K][:WHOSE][:refuse=TIME], such as create:2:waiter:refuse=2s: ",
    whose!(),
    "; refuse=TIME refuses the client for that time afterwards; ",
    besides!()
);
pub(super) const DROP_REPLY: &str = concat!(
    "MESSAGE[:K][:WHOSE][:accepted][:refuse=TIME], such as create:2:waiter:refuse=2s: ",
    whose!(),
    "; refuse=TIME refuses the client for that time afterwards; ",
    besides_of_replies!()
);
pub(super) const DELAY_REQUEST: &str = concat!(
    "MESSAGE[:K][:WHOSE][:TIME], such as DEL:1:releaser:3s: ",
    whose!(),
    "; TIME is the delay (default: a lease and a quarter of it); ",
    besides!()
);
pub(super) const DELAY_REPLY: &str = concat!(
    "MESSAGE[:K][:WHOSE][:accepted][:TIME], such as DEL:1:releaser:3s: ",
    whose!(),
    "; TIME is the delay of its reply (default: a lease and a quarter of it); ",
    besides_of_replies!()
);
pub(super) const KILL: &str = concat!(
    "MESSAGE[:K][:WHOSE][:accepted], such as SETNX:1:waiter: ",
    whose!(),
    "; ",
    besides_of_replies!()
);
