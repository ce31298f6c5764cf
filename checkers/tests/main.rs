//! What the checkers must answer: one program, so that one is linked.

mod clock_error;
mod collections;
mod corpus;
mod drawing;
mod every_way;
mod golden;
mod independent;
mod monitor;
mod properties;
mod reading;
mod readme;
mod search;
