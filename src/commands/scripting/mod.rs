//! Scripts that a client sends ([`scripts`]), and libraries of [`functions`] that the server keeps.

pub(super) mod functions;
pub(super) mod scripts;
