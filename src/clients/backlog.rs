//! Bytes that wait for a client which is slow to take them.
//!
//! They lie in pieces: a large buffer becomes a piece as it is, small ones are gathered. So nothing is copied
//! because more comes, a partial write moves nothing, and each piece is freed once it is written. A client
//! that reads slowly costs no more than what waits for it.

use std::collections::VecDeque;

/// A piece that gathers small buffers has room for at least this many bytes, …
const PIECE_BYTES_MIN: usize = 1 << 10;
/// … and grows with what waits, up to this. The system takes pieces of this size back when they are freed.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// A buffer below this is copied into a piece even if there is none yet.
const BUFFER_BYTES_MIN: usize = 4 << 10;
/// The memory that a piece takes beside its bytes.
const PIECE_OVERHEAD_BYTES: usize = size_of::<Vec<u8>>();

/// Bytes that wait, in their order.
#[derive(Debug, Default)]
pub struct Backlog {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that do not wait any more.
    taken: usize,
    bytes: usize,
    /// The bytes that all pieces have room for.
    capacity: usize,
}

impl Backlog {
    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How many bytes wait.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// In how many pieces.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.capacity + self.pieces.len() * PIECE_OVERHEAD_BYTES
    }

    /// Adds a copy of some bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let has_room = self.pieces.back().is_some_and(|last| last.capacity() - last.len() >= bytes.len());
        if !has_room {
            let room = self.bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX).max(bytes.len());
            self.add_piece(Vec::with_capacity(room));
        }
        if let Some(last) = self.pieces.back_mut() {
            last.extend_from_slice(bytes);
            self.bytes += bytes.len();
        }
    }

    /// Adds a buffer, of which the first `taken` bytes are left out. Returns a buffer to use again.
    pub fn push(&mut self, mut buffer: Vec<u8>, taken: usize) -> Vec<u8> {
        let rest = buffer.len() - taken;
        let begins = self.pieces.is_empty();
        if rest < BUFFER_BYTES_MIN || (rest < PIECE_BYTES_MAX && !begins) {
            self.extend(&buffer[taken..]);
            return buffer;
        }
        if begins {
            self.taken = taken;
        } else {
            buffer.drain(..taken);
        }
        // It may have been given twice the room that it needs.
        buffer.shrink_to_fit();
        self.bytes += rest;
        self.add_piece(buffer);
        Vec::new()
    }

    /// Adds all that waits in another one.
    pub fn append(&mut self, mut other: Backlog) {
        let taken = std::mem::take(&mut other.taken);
        for (number, piece) in other.pieces.into_iter().enumerate() {
            self.push(piece, if number == 0 { taken } else { 0 });
        }
    }

    fn add_piece(&mut self, piece: Vec<u8>) {
        self.capacity += piece.capacity();
        self.pieces.push_back(piece);
    }

    /// The bytes that come next; empty if nothing waits.
    pub fn front(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |first| &first[self.taken..])
    }

    /// Removes this number of the [next](Self::front) bytes.
    pub fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        self.bytes -= bytes;
        if self.pieces.front().is_some_and(|first| first.len() == self.taken) {
            self.taken = 0;
            let first = self.pieces.pop_front();
            self.capacity -= first.map_or(0, |first| first.capacity());
        }
        if self.is_empty() {
            // The list itself may have become long.
            *self = Backlog::default();
        }
    }

    /// Moves all that waits to the end of `output`.
    pub fn move_to(&mut self, output: &mut Vec<u8>) {
        let mut moved = std::mem::take(self);
        if output.is_empty() && moved.taken == 0 && moved.pieces.len() == 1 {
            std::mem::swap(output, &mut moved.pieces[0]);
            return;
        }
        output.reserve(moved.bytes);
        while !moved.is_empty() {
            let next = moved.front();
            output.extend_from_slice(next);
            moved.take(next.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ by place, so that a test notices any that are lost or moved.
    fn pattern(from: usize, bytes: usize) -> Vec<u8> {
        (from..from + bytes).map(|place| (place * 7 + place / 251) as u8).collect()
    }

    /// Buffers of all sizes, some partly written, as one sequence of bytes.
    fn filled(sizes: &[usize]) -> (Backlog, usize) {
        let (mut backlog, mut total) = (Backlog::default(), 0);
        for (number, size) in sizes.iter().enumerate() {
            let bytes = pattern(total, *size);
            match number % 3 {
                0 => backlog.extend(&bytes),
                1 => drop(backlog.push(bytes, 0)),
                _ => drop(backlog.push([b"written".to_vec(), bytes].concat(), "written".len())),
            }
            total += size;
        }
        (backlog, total)
    }

    const SIZES: [usize; 14] =
        [0, 1, 5, 4096, 4095, 70_000, 3, 300_000, 1_000_000, 1, 0, 262_144, 262_143, 17];

    #[test]
    fn what_waits_comes_out_as_it_went_in_however_it_is_cut() {
        for first in 0..SIZES.len() {
            let (mut backlog, total) = filled(&SIZES[first..]);
            assert_eq!(backlog.bytes(), total);
            let mut out = Vec::new();
            let mut most = 1;
            while !backlog.is_empty() {
                let next = backlog.front();
                let taken = next.len().min(most);
                out.extend_from_slice(&next[..taken]);
                backlog.take(taken);
                most = most * 3 + 1;
                assert_eq!(backlog.bytes(), total - out.len());
            }
            assert!(out == pattern(0, total), "from the size {first} on");
            assert_eq!((backlog.pieces(), backlog.memory_bytes(), backlog.front()), (0, 0, &[][..]));
        }
    }

    #[test]
    fn all_that_waits_can_be_moved() {
        let (mut backlog, total) = filled(&SIZES);
        let mut out = Vec::new();
        backlog.move_to(&mut out);
        assert!(backlog.is_empty() && out == pattern(0, total));
        let (mut one, one_bytes) = filled(&SIZES);
        one.take(1);
        let mut other = Backlog::default();
        other.extend(b"x");
        other.append(one);
        other.move_to(&mut out);
        assert!(out[total..] == [&b"x"[..], &pattern(1, one_bytes - 1)].concat());
    }

    #[test]
    fn it_takes_hardly_more_memory_than_what_waits() {
        let mut backlog = Backlog::default();
        for _ in 0..100_000 {
            backlog.extend(b"+OK\r\n");
            assert!(backlog.memory_bytes() < 2 * backlog.bytes() + 2 * PIECE_BYTES_MIN);
        }
        assert!(backlog.memory_bytes() < backlog.bytes() + 2 * PIECE_BYTES_MAX);
        let mut large = Vec::with_capacity(4 << 20);
        large.resize(3 << 20, b'x');
        let before = backlog.memory_bytes();
        backlog.push(large, 0);
        assert!(backlog.memory_bytes() - before < (3 << 20) + 4096);
        while !backlog.is_empty() {
            backlog.take(backlog.front().len());
            assert!(backlog.memory_bytes() < backlog.bytes() + 2 * PIECE_BYTES_MAX);
        }
    }
}
