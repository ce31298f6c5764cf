//! Lock clients: the pool, its processes, what each client does (driver), and which of them hold a lock now (holders).

mod abandoned;
pub mod access;
pub mod arrivals;
pub mod child;
pub mod driver;
mod handle;
pub mod holders;
mod pending;
pub mod pool;
pub mod process;
pub mod rarely;
mod rests;
pub mod workload;
