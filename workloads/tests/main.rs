//! The tests of the client protocol.

mod protocol;
