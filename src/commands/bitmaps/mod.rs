//! Strings as rows of bits: single [`bits`] and counts of them, and integers of any width ([`bitfield`]).

pub(super) mod bitfield;
pub(super) mod bits;

use crate::commands::args;
use crate::commands::error::Error;
use crate::commands::facts::Result;

/// The number of a bit; one after `#` counts integers of `width` bits.
fn bit_offset(text: &[u8], width: Option<usize>, value_bytes_max: usize) -> Result<usize> {
    let (digits, factor) = match (text, width) {
        ([b'#', digits @ ..], Some(width)) => (digits, width as i64),
        _ => (text, 1),
    };
    // Redis 7.0 multiplies without looking, so that the product may come out small.
    let offset = args::integer(digits).ok().and_then(|number| number.checked_mul(factor));
    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
    let offset = offset.filter(|offset| offset / 8 < value_bytes_max);
    offset.ok_or(Error::fixed("ERR bit offset is not an integer or out of range"))
}
