//! What the bytecode of a compiled script says about the script.
//!
//! The bytecode is that of Lua 5.1 as `string.dump` writes it: a header, then the main function. A function
//! consists of its head, its instructions, its constants, the functions within it, and debug information.

/// The bytes before the main function: a signature, and the sizes of numbers.
const HEADER_BYTES: usize = 12;
/// Instructions: one reads a global, two read from a table.
const GET_GLOBAL: u32 = 5;
const GET_ITEM: u32 = 6;
const LENGTH: u32 = 20;
/// The globals that are tables of each run: the keys and the arguments.
const GIVEN: [&[u8]; 2] = [b"KEYS\0", b"ARGV\0"];
/// Globals through which a script can reach any other global.
const WAYS_ROUND: [&[u8]; 3] = [b"_G\0", b"load\0", b"loadstring\0"];

/// Whether a function, with those within it, only reads items of `KEYS` and `ARGV`. Then it can neither
/// change these tables nor keep them. `dump` is the dumped function; one that cannot be read counts as one
/// that may do anything.
pub(super) fn only_looks(dump: &[u8]) -> bool {
    Dump(dump).only_looks().unwrap_or(false)
}

/// One instruction: its number in the lowest bits, then the register of its result, then operands.
#[derive(Clone, Copy)]
struct Instruction(u32);

impl Instruction {
    fn number(self) -> u32 {
        self.0 % (1 << 6)
    }

    fn target(self) -> u32 {
        self.0 >> 6 & 0xff
    }

    /// The register that the first of two operands names.
    fn source(self) -> u32 {
        self.0 >> 23
    }

    /// The index of the constant that is the only operand.
    fn constant(self) -> usize {
        (self.0 >> 14) as usize
    }

    /// Whether it overwrites `register`, which holds the table, with an item of the table or with its length.
    fn replaces_table(self, register: u32) -> bool {
        matches!(self.number(), GET_ITEM | LENGTH) && self.target() == register && self.source() == register
    }
}

struct Dump<'a>(&'a [u8]);

impl<'a> Dump<'a> {
    fn only_looks(&mut self) -> Option<bool> {
        self.take(HEADER_BYTES)?;
        let mut only_looks = true;
        // For each function that has begun: how many functions within it still follow.
        let mut inner = vec![self.begin_function(&mut only_looks)?];
        while let Some(left) = inner.last_mut() {
            if let Some(less) = left.checked_sub(1) {
                *left = less;
                inner.push(self.begin_function(&mut only_looks)?);
            } else {
                inner.pop();
                self.names()?;
            }
        }
        Some(only_looks)
    }

    /// Reads the head, the instructions and the constants of a function. Returns how many functions are
    /// within it.
    fn begin_function(&mut self, only_looks: &mut bool) -> Option<usize> {
        self.text()?;
        // The first and last line, and four numbers of one byte.
        self.take(2 * size_of::<i32>() + 4)?;
        let code: Vec<_> =
            self.numbers()?.iter().map(|bytes| Instruction(u32::from_ne_bytes(*bytes))).collect();
        let constants = self.constants()?;
        let next = code.iter().skip(1).map(Some).chain([None]);
        for (read, next) in code.iter().zip(next).filter(|(read, _)| read.number() == GET_GLOBAL) {
            let name = *constants.get(read.constant())?;
            let is_let_go = next.is_some_and(|next| next.replaces_table(read.target()));
            let may_keep = WAYS_ROUND.contains(&name) || GIVEN.contains(&name) && !is_let_go;
            *only_looks &= !may_keep;
        }
        self.count()
    }

    /// The constants of a function. Those that are no strings are empty here.
    fn constants(&mut self) -> Option<Vec<&'a [u8]>> {
        let mut constants = Vec::new();
        for _ in 0..self.count()? {
            constants.push(match self.take(1)? {
                [0] => &[],
                [1] => self.take(1).map(|_| &[][..])?,
                [3] => self.take(size_of::<f64>()).map(|_| &[][..])?,
                [4] => self.text()?,
                _ => return None,
            });
        }
        Some(constants)
    }

    /// Skips debug information: the lines of instructions, the variables and their scopes, and the names of
    /// variables from outside the function.
    fn names(&mut self) -> Option<()> {
        self.numbers()?;
        for _ in 0..self.count()? {
            self.text()?;
            self.take(2 * size_of::<i32>())?;
        }
        (0..self.count()?).try_for_each(|_| self.text().map(drop))
    }

    /// Numbers of four bytes each, after their count.
    fn numbers(&mut self) -> Option<&'a [[u8; 4]]> {
        let bytes = self.count()?.checked_mul(size_of::<u32>())?;
        Some(self.take(bytes)?.as_chunks().0)
    }

    /// A string with the zero byte that ends it; empty if the string is missing.
    fn text(&mut self) -> Option<&'a [u8]> {
        let bytes = usize::from_ne_bytes(self.take(size_of::<usize>())?.try_into().ok()?);
        self.take(bytes)
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

    use super::only_looks;

    fn looks(script: &str) -> bool {
        only_looks(&Lua::new().load(script).into_function().expect(script).dump(false))
    }

    #[test]
    fn a_script_that_may_change_or_keep_what_it_is_given_is_found_out() {
        for script in [
            "KEYS[1] = 'x'",
            "local k = KEYS return k[1]",
            "local k = KEYS local x = k[1] k[2] = 'x'",
            "return unpack(ARGV)",
            "return {KEYS}",
            "for _, key in ipairs(KEYS) do f(key) end",
            "ARGV.x = 1",
            "table.insert(KEYS, 'x')",
            "return function() return function() return ARGV end end",
            "return _G.KEYS[1]",
            "return loadstring('KEYS[1] = 1')()",
            "return load(f)",
            "return KEYS:f()",
            "return not KEYS",
            // Instructions in between compute the index.
            "return KEYS[at + 1]",
        ] {
            assert!(!looks(script), "{script}");
        }
    }

    #[test]
    fn one_that_only_looks_at_items_is_not() {
        for script in [
            "",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
            "local key, at = KEYS[1], 2 return key .. ARGV[at] .. (KEYS[2] or '')",
            "for i = 1, #KEYS do redis.call('set', KEYS[i], ARGV[i]) end",
            "return function() return KEYS[1] end, KEYS.x",
            "return {KEYS[1], ARGV[1]}",
        ] {
            assert!(looks(script), "{script}");
        }
    }

    #[test]
    fn what_cannot_be_read_may_do_anything() {
        let whole =
            Lua::new().load("return function() return x end").into_function().expect("it").dump(false);
        assert!(only_looks(&whole));
        for end in 0..whole.len() {
            assert!(!only_looks(&whole[..end]), "{end} bytes");
        }
    }
}
