//! The one door: every request, wherever it comes from, is admitted and run here.
//!
//! [`admission`] judges whether a request may run, by one table of checks for each [`origin`]; [`permission`]
//! asks there what its user may, [`intent`] what it may do, and [`room`] frees memory for it. [`run`] calls
//! its handler. [`bridge`] is how scripts come here, [`replay`] how the log does; what clients ask for comes
//! from the dispatcher. [`traces`] are what a command leaves behind.

pub mod admission;
pub mod intent;
pub mod origin;
pub mod permission;
pub mod replay;
pub mod room;
pub mod run;
pub mod traces;

pub(super) mod bridge;
