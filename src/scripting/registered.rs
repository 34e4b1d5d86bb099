//! A function that a library has registered, and what is allowed of it.

use super::shebang::Flags;

/// The most functions of all libraries together; a change takes time for each.
pub(crate) const FUNCTIONS_MAX: usize = 10_000;
/// The most bytes of all libraries: their code and the facts about their functions.
pub(crate) const BYTES_MAX: usize = 64 << 20;

/// The text of an error, from its code on.
pub(super) type Text = Vec<u8>;

/// A function that a library has registered.
#[derive(Debug)]
pub struct Function {
    /// The function's name; case does not matter.
    pub name: String,
    /// The author's description.
    pub description: Option<Vec<u8>>,
    /// What the function may do.
    pub flags: Flags,
}

impl Function {
    /// Bytes of the facts about this function.
    pub(super) fn bytes(&self) -> usize {
        self.name.len() + self.description.as_ref().map_or(0, Vec::len)
    }
}

const INVALID_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must \
                            be at least one character long";

/// Checks the name of a library or a function.
///
/// # Errors
///
/// If the name has other characters than letters, digits and `_`.
pub(super) fn valid_name(name: &[u8]) -> Result<String, Text> {
    let is_valid = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    match std::str::from_utf8(name) {
        Ok(name) if is_valid => Ok(name.to_owned()),
        _ => Err(INVALID_NAME.into()),
    }
}
