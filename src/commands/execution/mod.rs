//! The one door: every request, wherever it comes from, is admitted and run here.
//!
//! [`admission`] judges whether a request may run, by one table of checks for each [`origin`]. There,
//! [`permission`] checks what the user may do, [`intent`] finds what the request may do, and [`room`] frees
//! memory for it, after [`client_room`] has disconnected clients that take too much. [`load`] tells how much
//! work it makes. [`run`] calls the handler. Scripts come here by [`bridge`], the log by [`replay`], and
//! clients by the dispatcher. [`traces`] are what a command leaves in the statistics and logs.

pub mod admission;
pub mod blocking;
pub mod client_room;
pub mod intent;
pub mod load;
pub mod origin;
pub mod permission;
pub mod placing;
pub mod replay;
pub mod room;
pub mod run;
pub mod secrets;
pub mod traces;
pub mod tracking;

pub(in crate::commands) mod bridge;
