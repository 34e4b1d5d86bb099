//! Scripts in Lua 5.1, as EVAL runs them.
//!
//! So far the libraries that Redis gives to scripts.

#[cfg_attr(
    not(test),
    allow(dead_code, unused_imports, reason = "the interpreter that opens them comes next")
)]
mod libraries;
