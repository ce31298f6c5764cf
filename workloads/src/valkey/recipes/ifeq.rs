//! `valkey-ifeq`: `redis-watchdog` without a script, by the commands of Valkey that compare a value before they act.
//!
//! 1. SET key value NX PX lease, with a random value; poll while it is taken;
//! 2. every third of the lease, SET key value IFEQ value PX lease (Valkey 8.1). A careful client raises `lost` when the answer is nil,
//!    and when the lease ran out without an answer;
//! 3. DELIFEQ key value to release (Valkey 9.0).
//!
//! Source: the documentation of the commands, <https://valkey.io/commands/set/> and <https://valkey.io/commands/delifeq/>.

use crate::backend_id::BackendId;
use crate::recipe::{Constructor, Recipe};
use crate::redis::recipes::watchdog;
use crate::session::redis::CompareBy;

pub(super) const RECIPE: Recipe = Recipe {
    name: "valkey-ifeq",
    backend: BackendId::Valkey,
    summary: "SET NX PX, renewed by SET IFEQ while held, released by DELIFEQ",
    since: Some((9, 0)),
    constructor: Constructor::Redis(watchdog::client, CompareBy::Command),
    ..watchdog::RECIPE
};
