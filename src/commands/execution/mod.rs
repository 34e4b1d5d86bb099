//! The one way in which commands run: every request, wherever it comes from, is admitted and run here.
//!
//! [`admission`] judges whether a request may run, by one table of checks for each [`origin`]. There,
//! [`permission`] checks what the user may do, [`intent`] finds what the request may do, and [`room`] frees
//! memory for it, after [`client_room`] has disconnected clients that take too much. [`cost`] adds up what
//! it costs. [`run`] calls the handler. Scripts come here by [`bridge`], the log by [`replay`], and
//! clients by the dispatcher. [`traces`] are what a command leaves in the statistics and logs.

pub(crate) mod admission;
pub(crate) mod blocking;
pub(crate) mod client_room;
pub(crate) mod cost;
pub(crate) mod initial;
pub(crate) mod intent;
pub(crate) mod origin;
pub(crate) mod permission;
pub(crate) mod placing;
pub mod replay;
pub(crate) mod room;
pub(crate) mod run;
pub(crate) mod secrets;
pub(crate) mod traces;
pub(crate) mod tracking;

pub(in crate::commands) mod bridge;
