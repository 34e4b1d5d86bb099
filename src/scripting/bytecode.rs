//! What can be told of a script once it is compiled.
//!
//! The bytecode is that of Lua 5.1 as `string.dump` writes it: a header, then the main function. A function
//! is its head, its instructions, its constants, the functions within it, and what is for people.

/// The bytes before the main function: a signature, and the sizes of numbers.
const HEADER_BYTES: usize = 12;
/// The instruction that assigns to a global; the number of an instruction is in its lowest bits.
const SET_GLOBAL: u32 = 7;
const NUMBER_BITS: u32 = 6;

/// Whether a function, or one within it, may assign to a global. One that cannot be read may.
pub(super) fn writes_globals(dump: &[u8]) -> bool {
    Dump(dump).writes_globals().unwrap_or(true)
}

struct Dump<'a>(&'a [u8]);

impl<'a> Dump<'a> {
    fn writes_globals(&mut self) -> Option<bool> {
        self.take(HEADER_BYTES)?;
        let mut writes = self.instructions()?;
        // How many functions are still to come within each of those that have begun.
        let mut inner = vec![self.constants()?];
        while let Some(left) = inner.last_mut() {
            if let Some(less) = left.checked_sub(1) {
                *left = less;
                writes |= self.instructions()?;
                inner.push(self.constants()?);
            } else {
                inner.pop();
                self.names()?;
            }
        }
        Some(writes)
    }

    /// The head and the instructions of a function: whether one assigns to a global.
    fn instructions(&mut self) -> Option<bool> {
        self.text()?;
        // The lines where it is, and four small numbers.
        self.take(2 * size_of::<i32>() + 4)?;
        let number = |bytes: &[u8; 4]| u32::from_ne_bytes(*bytes) % (1 << NUMBER_BITS);
        Some(self.numbers()?.iter().any(|instruction| number(instruction) == SET_GLOBAL))
    }

    /// The constants of a function. Answers how many functions are within it.
    fn constants(&mut self) -> Option<usize> {
        for _ in 0..self.count()? {
            match self.take(1)? {
                [0] => {}
                [1] => drop(self.take(1)?),
                [3] => drop(self.take(size_of::<f64>())?),
                [4] => self.text()?,
                _ => return None,
            }
        }
        self.count()
    }

    /// What is for people: the lines of a function's instructions, its variables with where they are, and the
    /// names of those that it takes from outside.
    fn names(&mut self) -> Option<()> {
        self.numbers()?;
        for _ in 0..self.count()? {
            self.text()?;
            self.take(2 * size_of::<i32>())?;
        }
        (0..self.count()?).try_for_each(|_| self.text())
    }

    /// Numbers of four bytes each.
    fn numbers(&mut self) -> Option<&'a [[u8; 4]]> {
        let bytes = self.count()?.checked_mul(size_of::<u32>())?;
        Some(self.take(bytes)?.as_chunks().0)
    }

    fn text(&mut self) -> Option<()> {
        let bytes = usize::from_ne_bytes(self.take(size_of::<usize>())?.try_into().ok()?);
        self.take(bytes).map(drop)
    }

    fn count(&mut self) -> Option<usize> {
        let count = i32::from_ne_bytes(self.take(size_of::<i32>())?.try_into().ok()?);
        usize::try_from(count).ok()
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        self.0.split_off(..bytes)
    }
}

#[cfg(test)]
mod tests {
    use mlua::Lua;

    use super::writes_globals;

    fn writes(script: &str) -> bool {
        writes_globals(&Lua::new().load(script).into_function().expect(script).dump(false))
    }

    #[test]
    fn a_script_that_assigns_to_a_global_is_found_out() {
        for script in [
            "x = 1",
            "redis = nil",
            "function f() end",
            "local a a, b = 1, 2",
            "return function() return function() x = 1 end end",
            "local f = function() end local g = function() return 1, nil, true, 'x', 1.5 end KEYS = {}",
            "for i = 1, 2 do if i > 1 then while true do x = i end end end",
        ] {
            assert!(writes(script), "{script}");
        }
    }

    #[test]
    fn one_that_only_reads_them_is_not() {
        for script in [
            "",
            "return redis.call('get', KEYS[1])",
            "local x x = 1 return function() x = y return function() x = x + 1 end end",
            "local t = {a = 1, 2, nil, true, 1.5, 'x'} t.a = b t[1] = c return #t .. 'y'",
            "KEYS[1] = ARGV[1] return function(...) return ... end, function() end",
        ] {
            assert!(!writes(script), "{script}");
        }
    }

    #[test]
    fn what_cannot_be_read_may_do_anything() {
        let whole =
            Lua::new().load("return function() return x end").into_function().expect("it").dump(false);
        assert!(!writes_globals(&whole));
        for end in 0..whole.len() {
            assert!(writes_globals(&whole[..end]), "{end} bytes");
        }
    }
}
