//! The compression of Redis's snapshots: LZF, with the choices that Redis makes, so that payloads are the
//! same byte for byte.
//!
//! The stream is a row of runs. A control byte n below 32 announces n + 1 bytes as they are. Any other
//! repeats what came before: its upper three bits are the length less two (seven: the next byte is added),
//! its lower five and the next byte the distance less one.

/// Bytes of one run that are not compressed.
const LITERALS_MAX: usize = 32;
/// How far back a repetition may reach.
const DISTANCE_MAX: usize = 1 << 13;
/// How long one may be.
const REPEATED_MAX: usize = (1 << 8) + (1 << 3);
/// A shorter one is not worth it.
const REPEATED_MIN: usize = 3;
/// Bits of the hash of three bytes.
const HASH_BITS: u32 = 16;
/// A repetition of the longest kind takes three bytes: no stream stands for more than this multiple of its
/// length.
const RATIO_MAX: usize = REPEATED_MAX / 3 + 1;

/// Compresses strings one after the other, in memory that is made once.
#[derive(Debug)]
pub struct Compressor {
    /// By the hash of three bytes, where they were seen last: the place plus [`base`](Self::base) plus one.
    seen: Vec<u32>,
    /// What is not above it was seen in another string.
    base: u32,
    output: Vec<u8>,
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor { seen: vec![0; 1 << HASH_BITS], base: 0, output: Vec::new() }
    }
}

impl Compressor {
    /// Compresses a string of at most 4 GiB, if the result takes at most `bytes_max`.
    pub(super) fn compress(&mut self, input: &[u8], bytes_max: usize) -> Option<&[u8]> {
        let length = u32::try_from(input.len()).ok()?;
        let next_base = match self.base.checked_add(length) {
            Some(next_base) => next_base,
            None => {
                self.seen.fill(0);
                self.base = 0;
                length
            }
        };
        self.output.clear();
        self.output.push(0);
        let mut output = Output { bytes: &mut self.output, literals: 0, bytes_max };
        let compressed = output.compress(input, &mut self.seen, self.base);
        self.base = next_base;
        compressed.map(|()| self.output.as_slice())
    }
}

/// How many bytes from `at` on are the same as from `before` on; the first three are.
///
/// The last two bytes of the input are kept out, unless they come within the first steps, which Redis takes
/// without looking at the end.
fn repeated_length(input: &[u8], before: usize, at: usize) -> usize {
    const QUICK_STEPS: usize = 16;
    let length_max = (input.len() - at - 2).min(REPEATED_MAX);
    let is_same = |length: usize| input[before + length] == input[at + length];
    let mut length = 2;
    if length_max > QUICK_STEPS {
        for _ in 0..QUICK_STEPS {
            length += 1;
            if !is_same(length) {
                return length;
            }
        }
    }
    loop {
        length += 1;
        if length >= length_max || !is_same(length) {
            return length;
        }
    }
}

/// The hash of the first three bytes.
fn hash(bytes: &[u8]) -> usize {
    let three = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
    ((three >> (24 - HASH_BITS)).wrapping_sub(three.wrapping_mul(5)) & ((1 << HASH_BITS) - 1)) as usize
}

/// A stream that is being written. It always ends with a run of literals, perhaps of none: its control byte
/// is there already.
struct Output<'a> {
    bytes: &'a mut Vec<u8>,
    literals: usize,
    bytes_max: usize,
}

impl Output<'_> {
    /// Writes the whole input; none if that takes too many bytes.
    fn compress(&mut self, input: &[u8], seen: &mut [u32], base: u32) -> Option<()> {
        let mut at = 0;
        while at + REPEATED_MIN <= input.len() {
            let slot = &mut seen[hash(&input[at..])];
            // Redis never refers to the very first byte.
            let before = (*slot as usize).checked_sub(base as usize + 1).filter(|before| *before > 0);
            *slot = base + at as u32 + 1;
            let repeated = before.filter(|before| {
                at - before <= DISTANCE_MAX
                    && input[*before..before + REPEATED_MIN] == input[at..at + REPEATED_MIN]
            });
            let Some(before) = repeated else {
                self.literal(input[at])?;
                at += 1;
                continue;
            };
            let length = repeated_length(input, before, at);
            self.repetition(length, at - before)?;
            at += length;
            if at + 2 >= input.len() {
                break;
            }
            // Of what was repeated only the last two places are remembered.
            for place in at - 2..at {
                seen[hash(&input[place..])] = base + place as u32 + 1;
            }
        }
        if self.bytes.len() + 3 > self.bytes_max {
            return None;
        }
        input[at..].iter().for_each(|byte| self.push(*byte));
        self.drop_empty_run();
        Some(())
    }

    fn literal(&mut self, byte: u8) -> Option<()> {
        if self.bytes.len() >= self.bytes_max {
            return None;
        }
        self.push(byte);
        Some(())
    }

    fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
        self.literals += 1;
        if self.literals == LITERALS_MAX {
            self.end_run();
            self.bytes.push(0);
        }
    }

    fn repetition(&mut self, length: usize, distance: usize) -> Option<()> {
        let empty = usize::from(self.literals == 0);
        if self.bytes.len() - empty + 4 >= self.bytes_max {
            return None;
        }
        self.drop_empty_run();
        let (length, distance) = (length - 2, distance - 1);
        let far = (distance >> 8) as u8;
        if length < 7 {
            self.bytes.push(far | (length as u8) << 5);
        } else {
            self.bytes.extend([far | 7 << 5, (length - 7) as u8]);
        }
        self.bytes.extend([distance as u8, 0]);
        Some(())
    }

    /// Writes the control byte of the run.
    fn end_run(&mut self) {
        let control = self.bytes.len() - self.literals - 1;
        self.bytes[control] = (self.literals - 1) as u8;
        self.literals = 0;
    }

    fn drop_empty_run(&mut self) {
        if self.literals == 0 {
            self.bytes.pop();
        } else {
            self.end_run();
        }
    }
}

/// Decompresses what must become exactly `length` bytes.
pub(super) fn decompress(mut input: &[u8], length: usize) -> Option<Vec<u8>> {
    if length > input.len().saturating_mul(RATIO_MAX) {
        return None;
    }
    let mut output = Vec::new();
    while let Some((&control, rest)) = input.split_first() {
        input = rest;
        if usize::from(control) < LITERALS_MAX {
            let (literals, rest) = input.split_at_checked(usize::from(control) + 1)?;
            make_room(&mut output, literals.len(), length)?;
            output.extend_from_slice(literals);
            input = rest;
        } else {
            let mut repeated = usize::from(control >> 5) + 2;
            if repeated == 7 + 2 {
                repeated += usize::from(*input.split_off_first()?);
            }
            let distance = usize::from(control & 0x1f) << 8 | usize::from(*input.split_off_first()?);
            let from = output.len().checked_sub(distance + 1)?;
            make_room(&mut output, repeated, length)?;
            // It may reach into what it writes.
            for at in from..from + repeated {
                output.push(output[at]);
            }
        }
    }
    (output.len() == length).then_some(output)
}

/// Makes room for `added` bytes more, if the output stays within `length_max`.
///
/// What is announced is not yet there: the room at most doubles what was decompressed so far.
fn make_room(output: &mut Vec<u8>, added: usize, length_max: usize) -> Option<()> {
    const ROOM_BYTES_MIN: usize = 1 << 12;
    let left = length_max - output.len();
    if added > left {
        return None;
    }
    if output.capacity() - output.len() < added {
        output.reserve_exact(output.len().max(ROOM_BYTES_MIN).min(left));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_for_what_is_there_and_not_for_what_is_announced() {
        const ANNOUNCED: usize = 1 << 20;
        let mut output = Vec::new();
        make_room(&mut output, 1, ANNOUNCED).unwrap();
        assert!(output.capacity() < ANNOUNCED / 100);
        while output.len() < ANNOUNCED {
            make_room(&mut output, 1, ANNOUNCED).unwrap();
            output.push(b'x');
            assert!(output.capacity() <= ANNOUNCED.min((2 * output.len()).max(ANNOUNCED / 100)));
        }
        assert_eq!(make_room(&mut output, 1, ANNOUNCED), None);
    }
}
