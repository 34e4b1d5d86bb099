//! The place in memory where the system reads a process's command line, for the title that `ps` shows.
//!
//! The system keeps the arguments and behind them the environment as texts on the stack of the first thread.
//! What it shows is what is in the place of the arguments.
//!
//! Linux says in a file of `/proc` where they are. If the last byte there is not NUL, the program has
//! overwritten them, and Linux shows the text from the first byte to the first NUL, also if that is in the
//! place of the environment. On macOS the arguments are found by the C library's `argv`. `ps` takes as many
//! texts there as there were arguments, so the others are left empty, and a title has no more room. Other
//! systems show the command line as it was.

#![allow(unsafe_code)]

use std::ops::Range;

/// What stands at the end of the arguments if the title is shorter.
const END: u8 = if cfg!(target_os = "linux") { b'.' } else { 0 };

/// The place for a title in this process's memory: that of its arguments, and perhaps of its environment.
///
/// Invariant: the bytes of `start..end` are mapped and can be written. Nothing refers to them but the C
/// library's `argv`, which the standard library reads as texts that end with NUL. No thread reads `argv`
/// while a title is written: only `main` does, before.
#[derive(Debug)]
pub(crate) struct Place {
    start: usize,
    arguments_end: usize,
    end: usize,
}

impl Place {
    /// Asks the system for the place of the arguments. `None` if it does not tell, such as an emulator, or if
    /// something else is there.
    pub(crate) fn find() -> Option<Place> {
        let Range { start, end } = arguments()?;
        Some(Place { start, arguments_end: end, end })
    }

    /// Adds the place of the environment, which is moved elsewhere.
    ///
    /// The caller is the only thread.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_environment(self) -> Place {
        use std::env;
        use std::os::unix::ffi::OsStrExt;

        let variables: Vec<_> = env::vars_os().collect();
        let bytes = variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        for (name, value) in variables {
            if !name.as_bytes().contains(&b'=') {
                // SAFETY: no other thread reads or changes the environment, as there is none. The C library
                // puts the variable, which stays what it was, into memory of its own.
                unsafe { env::set_var(name, value) };
            }
        }
        let stat = std::fs::read_to_string("/proc/self/stat").ok();
        let is_behind = stat.and_then(|stat| stat::range_of_environment(&stat));
        let end = is_behind.filter(|range| range.start == self.arguments_end && range.len() == bytes);
        Place { end: end.map_or(self.end, |range| range.end), ..self }
    }

    /// Would add the place of the environment, which this system does not show.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn with_environment(self) -> Place {
        self
    }

    /// Puts a title there, or as much of it as there is room for. The caller sees to it that no other thread
    /// does so at the same time.
    pub(crate) fn write(&self, title: &[u8]) {
        let title = title.split(|byte| *byte == 0).next().unwrap_or_default();
        let shown = &title[..title.len().min(self.end - self.start - 1)];
        let arguments = self.arguments_end - self.start;
        let mut text = shown.to_vec();
        text.resize(text.len().max(arguments - 1), 0);
        // A byte that is not NUL at the end of the arguments: the title ends at the first NUL.
        if shown.len() + 1 < arguments {
            text.push(END);
        } else {
            text.push(0);
        }
        // SAFETY: the text is no longer than the place, by the lines above; the place is as the type says. No
        // other thread writes there.
        unsafe {
            let start = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
            std::ptr::copy_nonoverlapping(text.as_ptr(), start, text.len());
        }
    }
}

/// Where the arguments are.
#[cfg(target_os = "linux")]
fn arguments() -> Option<Range<usize>> {
    use std::os::unix::ffi::OsStrExt;
    use std::{env, fs};

    let arguments = stat::range_of_arguments(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let known: Vec<u8> = env::args_os().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    // The system reads this from that place.
    let is_there = arguments.len() == known.len() && fs::read("/proc/self/cmdline").ok()? == known;
    is_there.then_some(arguments)
}

/// Where the arguments are, if each is right behind the one before it.
#[cfg(target_os = "macos")]
fn arguments() -> Option<Range<usize>> {
    // SAFETY: the C library has set both before `main`, and no code changes them.
    let (count, texts) = unsafe { (*libc::_NSGetArgc(), *libc::_NSGetArgv()) };
    let mut range: Option<Range<usize>> = None;
    for number in 0..usize::try_from(count).ok()? {
        // SAFETY: there are `count` pointers, each to a text that ends with NUL.
        let (start, bytes) = unsafe {
            let text = *texts.add(number);
            (text.expose_provenance(), std::ffi::CStr::from_ptr(text).count_bytes() + 1)
        };
        range = match range {
            None => Some(start..start + bytes),
            Some(before) if before.end == start => Some(before.start..start + bytes),
            Some(_) => return None,
        };
    }
    range
}

/// Where the arguments are: on this system it is not known.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn arguments() -> Option<Range<usize>> {
    None
}

#[cfg(target_os = "linux")]
mod stat {
    use std::ops::Range;

    /// Where the arguments are, by proc(5): the fields 48 and 49 of `stat`.
    pub(super) fn range_of_arguments(stat: &str) -> Option<Range<usize>> {
        range_in(stat, 48)
    }

    /// Where the environment is: the fields 50 and 51.
    pub(super) fn range_of_environment(stat: &str) -> Option<Range<usize>> {
        range_in(stat, 50)
    }

    fn range_in(stat: &str, field: usize) -> Option<Range<usize>> {
        // The second field is a name in parentheses, which may hold anything.
        let (_, behind_name) = stat.rsplit_once(')')?;
        let mut numbers = behind_name.split_ascii_whitespace().skip(field - 3).map(str::parse);
        let (start, end) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        (0 < start && start < end).then_some(start..end)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const STAT: &str = "\
            23126 (key) f) S 1 23126 23126 0 -1 4194304 101 0 0 0 0 0 0 0 20 0 1 0 2316 2605056 221 \
            18446744073709551615 94 95 140 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 96 97 98 1000 1030 1030 2000 0";

        #[test]
        fn the_system_says_where_arguments_and_environment_are() {
            assert_eq!(range_of_arguments(STAT), Some(1000..1030));
            assert_eq!(range_of_environment(STAT), Some(1030..2000));
            // An emulator knows nothing.
            let unknown = STAT.replace("1000 1030 1030 2000", "0 0 0 0");
            assert_eq!(range_of_arguments(&unknown), None);
            assert_eq!(range_of_arguments("1 (keyfast) S 1 2"), None);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_title_fills_its_place_and_no_more() {
        for (room, title, expected) in [
            (12..12, "abc", &b"abc\0\0\0\0\0\0\0\0."[..]),
            (12..12, "0123456789", b"0123456789\0."),
            (12..12, "0123456789a", b"0123456789a\0"),
            (12..12, "0123456789ab", b"0123456789a\0"),
            (12..16, "0123456789ab", b"0123456789ab\0eee"),
            (12..16, "0123456789abcdefg", b"0123456789abcde\0"),
            (1..1, "abc", b"\0"),
        ] {
            let mut memory = vec![b'e'; room.end + 1];
            let start = memory.as_mut_ptr().expose_provenance();
            let place = Place { start, arguments_end: start + room.start, end: start + room.end };
            place.write(title.as_bytes());
            assert_eq!(memory.pop(), Some(b'e'), "what is behind it is not touched");
            assert_eq!(memory.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }
}
