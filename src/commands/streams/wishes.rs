//! The options and streams of a request of XREAD or XREADGROUP.

use crate::resp::Request;
use crate::resp::number::parse_integer;

use crate::commands::args::{integer, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{Result, Timeout};

/// The streams, the options and the group of a request.
pub(super) struct Reading<'a> {
    /// The group and its consumer.
    pub(super) group: Option<(&'a [u8], &'a [u8])>,
    /// The most entries of each stream; 0 for any number.
    pub(super) count: usize,
    /// The most entries of all streams (MAXCOUNT).
    pub(super) count_of_all: Option<usize>,
    /// The most bytes of the reply, beside those of its first entry (MAXSIZE).
    pub(super) bytes_max: Option<usize>,
    pub(super) timeout: Timeout<'a>,
    /// For how long entries must have been pending that the client wants, too, in milliseconds (CLAIM).
    pub(super) idle_ms_min: Option<u64>,
    pub(super) is_acknowledged: bool,
    /// The position of the first key.
    pub(super) first: usize,
    pub(super) streams: usize,
}

impl<'a> Reading<'a> {
    pub(super) fn parse(request: Request<'a>, is_group: bool) -> Result<Reading<'a>> {
        let mut reading = Reading {
            group: None,
            count: 0,
            count_of_all: None,
            bytes_max: None,
            timeout: Timeout::None,
            idle_ms_min: None,
            is_acknowledged: false,
            first: 0,
            streams: 0,
        };
        let mut at = 1;
        while let Some(option) = request.get(at) {
            let more = request.len() - at - 1;
            if is_word(option, "claim") && more > 0 {
                if !is_group {
                    return Err(only_of_groups("CLAIM"));
                }
                at += 1;
                reading.idle_ms_min = Some(idle_ms_min(request.at(at))?);
            } else if is_word(option, "block") && more > 0 {
                at += 1;
                reading.timeout = timeout(request.at(at))?;
            } else if is_word(option, "count") && more > 0 {
                at += 1;
                reading.count = integer(request.at(at))?.max(0) as usize;
            } else if is_word(option, "maxcount") && more > 0 {
                at += 1;
                let error = "ERR MAXCOUNT must be a positive integer";
                reading.count_of_all = Some(at_least_one(request.at(at), error)?);
            } else if is_word(option, "maxsize") && more > 0 {
                at += 1;
                let error = "ERR MAXSIZE must be a positive integer";
                reading.bytes_max = Some(at_least_one(request.at(at), error)?);
            } else if is_word(option, "streams") && more > 0 {
                if !more.is_multiple_of(2) {
                    return Err(Error::fixed(match is_group {
                        true => {
                            "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' \
                             must be specified."
                        }
                        false => {
                            "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' \
                             must be specified."
                        }
                    }));
                }
                (reading.first, reading.streams) = (at + 1, more / 2);
                break;
            } else if is_word(option, "group") && more > 1 {
                if !is_group {
                    return Err(only_of_groups("GROUP"));
                }
                reading.group = Some((request.at(at + 1), request.at(at + 2)));
                at += 2;
            } else if is_word(option, "noack") {
                if !is_group {
                    return Err(only_of_groups("NOACK"));
                }
                reading.is_acknowledged = true;
            } else {
                return Err(Error::SYNTAX);
            }
            at += 1;
        }
        if reading.first == 0 {
            return Err(Error::SYNTAX);
        }
        if is_group && reading.group.is_none() {
            return Err(Error::fixed("ERR Missing GROUP option for XREADGROUP"));
        }
        if reading.count_of_all.is_some_and(|all| all < reading.count) {
            return Err(Error::fixed("ERR MAXCOUNT must be greater than or equal to COUNT"));
        }
        Ok(reading)
    }

    /// The keys, each with the ID behind which the client wants to read.
    pub(super) fn streams(
        &self,
        request: Request<'a>,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (first, streams) = (self.first, self.streams);
        (first..first + streams).map(move |at| (request.at(at), request.at(at + streams)))
    }
}

fn only_of_groups(option: &str) -> Error {
    Error::text(format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."))
}

fn at_least_one(text: &[u8], error: &'static str) -> Result<usize> {
    usize::try_from(integer(text)?).ok().filter(|number| *number > 0).ok_or(Error::fixed(error))
}

fn idle_ms_min(text: &[u8]) -> Result<u64> {
    let wrong = Error::fixed("ERR min-idle-time is not an integer or out of range");
    let number = parse_integer(text).ok_or(wrong)?;
    u64::try_from(number).map_err(|_| Error::fixed("ERR min-idle-time must be a positive integer"))
}

/// Reads a timeout in milliseconds.
fn timeout(text: &[u8]) -> Result<Timeout<'_>> {
    let number = parse_integer(text).ok_or(Error::fixed("ERR timeout is not an integer or out of range"))?;
    let milliseconds = u64::try_from(number).map_err(|_| Error::fixed("ERR timeout is negative"))?;
    // Redis: with the time of day, it must be an integer of 64 bits.
    if milliseconds > i64::MAX as u64 / 2 {
        return Err(Error::fixed("ERR timeout is out of range"));
    }
    Ok(Timeout::Milliseconds(milliseconds))
}
