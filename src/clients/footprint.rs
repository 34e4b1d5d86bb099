//! How much memory a client takes, and how much all of them take together.
//!
//! The connection reports the sizes of its buffers whenever they change; it reports nothing while a client
//! sends whole requests and takes its replies. Others read it: CLIENT LIST, INFO, the limits of output and of
//! all clients' memory.
//!
//! What strangers take, which have not authenticated, is summed up apart: they must not push out data, and
//! together they may have only so much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mail that takes no more than this does not count.
const MAIL_BYTES_MIN: usize = 2 << 10;
/// What the buffers of a client that has not authenticated may always take: more than a password, …
const STRANGER_FREE_BYTES: usize = 4 << 10;
/// … and all clients above that limit together.
const STRANGERS_BUFFER_BYTES_MAX: usize = 8 << 20;

/// The memory of all clients.
#[derive(Debug, Default)]
pub struct ClientMemory {
    bytes: AtomicUsize,
    /// Those of clients that have not authenticated, without their mail, which they do not get.
    strangers_bytes: AtomicUsize,
    /// Those of their buffers.
    strangers_buffer_bytes: AtomicUsize,
}

impl ClientMemory {
    /// Bytes that all clients take together.
    pub fn bytes(&self) -> usize {
        // For a moment one client's decrease can be counted before another's increase.
        not_negative(&self.bytes)
    }

    /// Bytes that clients take which have not authenticated.
    pub fn strangers_bytes(&self) -> usize {
        not_negative(&self.strangers_bytes)
    }
}

fn not_negative(sum: &AtomicUsize) -> usize {
    (sum.load(Ordering::Relaxed) as isize).max(0) as usize
}

/// The sizes of a client's input buffers, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Bytes that were received and are no argument yet.
    pub query_bytes: usize,
    /// Room for more of them.
    pub query_free_bytes: usize,
    /// Arguments of a request that is not whole yet.
    pub argument_bytes: usize,
    /// Commands between MULTI and EXEC, and watched keys.
    pub queued_bytes: usize,
    /// Names of channels that it listens to, and prefixes of keys that it tracks.
    pub subscribed_bytes: usize,
}

/// The size of the output that waits for a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Bytes that wait.
    pub bytes: usize,
    /// In how many pieces of memory.
    pub pieces: usize,
    /// Bytes of memory that these take.
    pub memory_bytes: usize,
}

/// The memory of one client, as others see it.
#[derive(Debug)]
pub struct Footprint {
    all: Arc<ClientMemory>,
    /// Whether the client has not authenticated.
    is_stranger: AtomicBool,
    /// Bytes that it takes while its buffers are empty.
    base_bytes: AtomicUsize,
    query_bytes: AtomicUsize,
    query_free_bytes: AtomicUsize,
    argument_bytes: AtomicUsize,
    queued_bytes: AtomicUsize,
    subscribed_bytes: AtomicUsize,
    output_bytes: AtomicUsize,
    output_pieces: AtomicUsize,
    output_memory_bytes: AtomicUsize,
    mail_memory_bytes: AtomicUsize,
    reserved_bytes: AtomicUsize,
}

impl Footprint {
    pub(super) fn new(all: Arc<ClientMemory>) -> Footprint {
        Footprint {
            all,
            is_stranger: AtomicBool::new(true),
            base_bytes: AtomicUsize::new(0),
            query_bytes: AtomicUsize::new(0),
            query_free_bytes: AtomicUsize::new(0),
            argument_bytes: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            subscribed_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            output_pieces: AtomicUsize::new(0),
            output_memory_bytes: AtomicUsize::new(0),
            mail_memory_bytes: AtomicUsize::new(0),
            reserved_bytes: AtomicUsize::new(0),
        }
    }

    /// Sets the bytes that the client takes while its buffers are empty.
    pub fn set_base(&self, bytes: usize) {
        let before = self.base_bytes.load(Ordering::Relaxed);
        self.set_memory(&self.base_bytes, bytes);
        self.count_stranger(&self.all.strangers_bytes, before, bytes);
    }

    /// Sets whether the client has authenticated. Only its own connection calls this.
    pub fn set_known(&self, is_known: bool) {
        if self.is_stranger.load(Ordering::Relaxed) != is_known {
            return;
        }
        let (base, buffers) = (self.base_bytes.load(Ordering::Relaxed), self.buffer_bytes());
        self.count_stranger(&self.all.strangers_bytes, base + buffers, 0);
        self.count_stranger(&self.all.strangers_buffer_bytes, buffers, 0);
        self.is_stranger.store(!is_known, Ordering::Relaxed);
        self.count_stranger(&self.all.strangers_bytes, 0, base + buffers);
        self.count_stranger(&self.all.strangers_buffer_bytes, 0, buffers);
    }

    /// Whether the buffers of a client that has not authenticated take more than they may, beside those of
    /// all others. A little is always allowed.
    pub fn is_too_much_of_a_stranger(&self) -> bool {
        self.is_stranger.load(Ordering::Relaxed)
            && self.buffer_bytes() > STRANGER_FREE_BYTES
            && not_negative(&self.all.strangers_buffer_bytes) > STRANGERS_BUFFER_BYTES_MAX
    }

    /// Bytes of the buffers whose sizes its own connection sets.
    fn buffer_bytes(&self) -> usize {
        let buffers =
            [&self.query_bytes, &self.query_free_bytes, &self.argument_bytes, &self.output_memory_bytes];
        buffers.iter().map(|part| part.load(Ordering::Relaxed)).sum()
    }

    /// Changes a sum over the clients that have not authenticated, if this is one of them.
    fn count_stranger(&self, sum: &AtomicUsize, before: usize, after: usize) {
        if self.is_stranger.load(Ordering::Relaxed) && before != after {
            // Wraps around where it has become less.
            sum.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Changes its buffers, and the sums with them.
    fn set_buffers(&self, change: impl FnOnce()) {
        let before = self.buffer_bytes();
        change();
        let after = self.buffer_bytes();
        self.count_stranger(&self.all.strangers_bytes, before, after);
        self.count_stranger(&self.all.strangers_buffer_bytes, before, after);
    }

    /// Sets the sizes of its input buffers.
    pub fn set_input(&self, input: Input) {
        self.set_buffers(|| {
            self.set_memory(&self.query_bytes, input.query_bytes);
            self.set_memory(&self.query_free_bytes, input.query_free_bytes);
            self.set_memory(&self.argument_bytes, input.argument_bytes);
        });
        self.set_memory(&self.queued_bytes, input.queued_bytes);
        self.set_memory(&self.subscribed_bytes, input.subscribed_bytes);
    }

    /// The sizes of its input buffers.
    pub fn input(&self) -> Input {
        Input {
            query_bytes: self.query_bytes.load(Ordering::Relaxed),
            query_free_bytes: self.query_free_bytes.load(Ordering::Relaxed),
            argument_bytes: self.argument_bytes.load(Ordering::Relaxed),
            queued_bytes: self.queued_bytes.load(Ordering::Relaxed),
            subscribed_bytes: self.subscribed_bytes.load(Ordering::Relaxed),
        }
    }

    /// Sets the size of the output that its connection has to write.
    pub(super) fn set_output(&self, output: Output) {
        self.output_bytes.store(output.bytes, Ordering::Relaxed);
        self.output_pieces.store(output.pieces, Ordering::Relaxed);
        self.set_buffers(|| self.set_memory(&self.output_memory_bytes, output.memory_bytes));
    }

    /// The size of the output that its connection has to write.
    pub(super) fn output(&self) -> Output {
        Output {
            bytes: self.output_bytes.load(Ordering::Relaxed),
            pieces: self.output_pieces.load(Ordering::Relaxed),
            memory_bytes: self.output_memory_bytes.load(Ordering::Relaxed),
        }
    }

    /// Sets the bytes that its mail takes. Usual amounts count as 0: the connection takes them at once.
    pub(super) fn set_mail(&self, memory_bytes: usize) {
        let counted = if memory_bytes <= MAIL_BYTES_MIN { 0 } else { memory_bytes };
        self.set_memory(&self.mail_memory_bytes, counted);
    }

    /// Sets the bytes that the reply takes which is being made for it, or will be made.
    pub fn set_reserved(&self, bytes: usize) {
        self.set_memory(&self.reserved_bytes, bytes);
    }

    /// Bytes of memory that the client takes.
    pub fn bytes(&self) -> usize {
        self.memory().iter().map(|part| part.load(Ordering::Relaxed)).fold(0, usize::saturating_add)
    }

    /// Sets all sizes to zero, when the client has left.
    pub(super) fn clear(&self) {
        self.set_known(true);
        self.memory().iter().for_each(|part| self.set_memory(part, 0));
    }

    /// Everything that takes memory.
    fn memory(&self) -> [&AtomicUsize; 9] {
        [
            &self.base_bytes,
            &self.query_bytes,
            &self.query_free_bytes,
            &self.argument_bytes,
            &self.queued_bytes,
            &self.subscribed_bytes,
            &self.output_memory_bytes,
            &self.mail_memory_bytes,
            &self.reserved_bytes,
        ]
    }

    /// Changes a part, and the sum of all clients with it.
    fn set_memory(&self, part: &AtomicUsize, bytes: usize) {
        if part.load(Ordering::Relaxed) != bytes {
            let before = part.swap(bytes, Ordering::Relaxed);
            // Wraps around where it has become less.
            self.all.bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

impl Drop for Footprint {
    fn drop(&mut self) {
        self.set_known(true);
        self.all.bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_follows_every_client_and_forgets_those_that_left() {
        let all = Arc::new(ClientMemory::default());
        let (one, two) = (Footprint::new(Arc::clone(&all)), Footprint::new(Arc::clone(&all)));
        one.set_base(100);
        two.set_base(100);
        one.set_input(Input { query_bytes: 7, queued_bytes: 20, ..Input::default() });
        two.set_output(Output { bytes: 900, pieces: 1, memory_bytes: 1000 });
        two.set_mail(5000);
        one.set_mail(50);
        assert_eq!((one.bytes(), two.bytes(), all.bytes()), (127, 6100, 6227));
        one.set_input(Input::default());
        assert_eq!(all.bytes(), 6200);
        two.clear();
        assert_eq!(all.bytes(), 100);
        two.set_mail(5000);
        drop(two);
        assert_eq!(all.bytes(), 100);
        drop(one);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn what_strangers_take_is_summed_up_until_they_are_known_or_leave() {
        let all = Arc::new(ClientMemory::default());
        let (one, two) = (Footprint::new(Arc::clone(&all)), Footprint::new(Arc::clone(&all)));
        one.set_base(100);
        two.set_base(100);
        one.set_input(Input { query_bytes: 5000, queued_bytes: 20, ..Input::default() });
        two.set_output(Output { bytes: 900, pieces: 1, memory_bytes: STRANGERS_BUFFER_BYTES_MAX });
        assert_eq!(all.strangers_bytes(), 5200 + STRANGERS_BUFFER_BYTES_MAX);
        assert!(one.is_too_much_of_a_stranger() && two.is_too_much_of_a_stranger());
        one.set_known(true);
        assert_eq!(all.strangers_bytes(), 100 + STRANGERS_BUFFER_BYTES_MAX);
        assert!(!one.is_too_much_of_a_stranger() && !two.is_too_much_of_a_stranger());
        one.set_input(Input { query_bytes: 200, ..Input::default() });
        one.set_known(false);
        two.set_known(true);
        assert_eq!(all.strangers_bytes(), 300);
        two.clear();
        drop(one);
        assert_eq!((all.strangers_bytes(), not_negative(&all.strangers_buffer_bytes)), (0, 0));
    }
}
