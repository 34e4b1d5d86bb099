//! What can be told of a script once it is compiled.
//!
//! The bytecode is that of Lua 5.1 as `string.dump` writes it: a header, then the main function. A function
//! is its head, its instructions, its constants, the functions within it, and what is for people.

/// The bytes before the main function: a signature, and the sizes of numbers.
const HEADER_BYTES: usize = 12;
/// Instructions: one that reads a global, and two that look into a table.
const GET_GLOBAL: u32 = 5;
const GET_ITEM: u32 = 6;
const LENGTH: u32 = 20;
/// The globals that are tables of a script's own.
const GIVEN: [&[u8]; 2] = [b"KEYS\0", b"ARGV\0"];
/// Those by which one can get hold of any other.
const WAYS_ROUND: [&[u8]; 3] = [b"_G\0", b"load\0", b"loadstring\0"];

/// Whether a function, with those within it, does nothing with the tables of its keys and arguments but look
/// at their items: whatever it looks at them with forgets the table at once. It cannot change them then, nor
/// keep them. The function is given by what has been dumped of it; one that cannot be read may do anything.
pub(super) fn only_looks(dump: &[u8]) -> bool {
    Dump(dump).only_looks().unwrap_or(false)
}

/// One instruction: its number in the lowest bits, then where its result goes, then operands.
#[derive(Clone, Copy)]
struct Instruction(u32);

impl Instruction {
    fn number(self) -> u32 {
        self.0 % (1 << 6)
    }

    fn target(self) -> u32 {
        self.0 >> 6 & 0xff
    }

    /// The first of two operands.
    fn source(self) -> u32 {
        self.0 >> 23
    }

    /// The place of the constant that is the only operand.
    fn constant(self) -> usize {
        (self.0 >> 14) as usize
    }

    /// Whether it puts an item of the table in a register, or its length, into that register.
    fn replaces_table(self, register: u32) -> bool {
        matches!(self.number(), GET_ITEM | LENGTH) && self.target() == register && self.source() == register
    }
}

struct Dump<'a>(&'a [u8]);

impl<'a> Dump<'a> {
    fn only_looks(&mut self) -> Option<bool> {
        self.take(HEADER_BYTES)?;
        let mut only_looks = true;
        // How many functions are still to come within each of those that have begun.
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

    /// The head, the instructions and the constants of a function. Answers how many functions are within it.
    fn begin_function(&mut self, only_looks: &mut bool) -> Option<usize> {
        self.text()?;
        // The lines where it is, and four small numbers.
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

    /// The constants of a function; those that are no texts are empty here.
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

    /// What is for people: the lines of a function's instructions, its variables with where they are, and the
    /// names of those that it takes from outside.
    fn names(&mut self) -> Option<()> {
        self.numbers()?;
        for _ in 0..self.count()? {
            self.text()?;
            self.take(2 * size_of::<i32>())?;
        }
        (0..self.count()?).try_for_each(|_| self.text().map(drop))
    }

    /// Numbers of four bytes each.
    fn numbers(&mut self) -> Option<&'a [[u8; 4]]> {
        let bytes = self.count()?.checked_mul(size_of::<u32>())?;
        Some(self.take(bytes)?.as_chunks().0)
    }

    /// A text with the zero that ends it, or nothing.
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
            // The index is found in between.
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
