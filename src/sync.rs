//! The locks and atomic numbers of the keyspace, and of the order in which clients are served.
//!
//! In the unit tests of the feature `shuttle` these are the types of a model. At each use the model may
//! switch to another task, so that `keyspace::interleavings` and `host::rota::interleavings` can try the
//! orders in which things may happen. The model knows orders, but no weak memory. That is enough for the
//! keyspace, where every relaxed read happens under a lock.

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

#[cfg(all(test, feature = "shuttle"))]
pub(crate) use model::{AtomicBool, AtomicU8, AtomicU64, Mutex, MutexGuard};
#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(all(test, not(feature = "shuttle")))]
pub(crate) use timed::{Mutex, MutexGuard, longest_hold, unshared};

/// Locks something that no other thread can want. It makes no difference, except that the time for which it
/// is held is not measured.
#[cfg(any(not(test), feature = "shuttle"))]
#[inline(always)]
pub(crate) fn unshared<T>(lock: impl FnOnce() -> T) -> T {
    lock()
}

/// In all other unit tests the locks measure how much processor time a thread spends while it holds one.
#[cfg(all(test, not(feature = "shuttle")))]
mod timed {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    use crate::platform::thread_clock::processor_time;

    thread_local! {
        /// The longest time for which this thread has held a lock, while that is measured.
        static LONGEST: Cell<Option<Duration>> = const { Cell::new(None) };
    }

    /// Does some work. Returns the most processor time that this thread has spent meanwhile between locking
    /// something and unlocking it.
    pub(crate) fn longest_hold(work: impl FnOnce()) -> Duration {
        LONGEST.set(Some(Duration::ZERO));
        work();
        LONGEST.take().unwrap_or_default()
    }

    /// Locks something that no other thread can want, so that it does not count for how long it is held.
    pub(crate) fn unshared<T>(lock: impl FnOnce() -> T) -> T {
        let longest = LONGEST.take();
        let locked = lock();
        LONGEST.set(longest);
        locked
    }

    /// The functions of parking_lot's mutex that are used.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T> {
        guard: parking_lot::MutexGuard<'a, T>,
        /// When it was locked, by the processor time of this thread, if that is measured.
        locked: Option<Duration>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard::new(self.0.lock())
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().map(MutexGuard::new)
        }

        pub(crate) fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock_for(time).map(MutexGuard::new)
        }
    }

    impl<'a, T> MutexGuard<'a, T> {
        fn new(guard: parking_lot::MutexGuard<'a, T>) -> Self {
            MutexGuard { guard, locked: LONGEST.get().map(|_| processor_time()) }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            if let (Some(locked), Some(longest)) = (self.locked, LONGEST.get()) {
                LONGEST.set(Some(longest.max(processor_time() - locked)));
            }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.guard
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod model {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Duration;

    use shuttle::sync as shuttled;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
    use shuttle::thread;

    shuttle::thread_local! {
        /// How many locks a task holds.
        static HELD: Cell<usize> = Cell::new(0);
    }

    /// The functions of parking_lot's mutex that are used.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttled::Mutex<T>);

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(shuttled::MutexGuard<'a, T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(shuttled::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard::new(self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(MutexGuard::new)
        }

        /// The model has no time. A task that holds nothing blocks no other task, so it waits as long as it
        /// takes. A task that holds a lock lets another task run, tries once more, and gives up.
        pub(crate) fn try_lock_for(&self, _: Duration) -> Option<MutexGuard<'_, T>> {
            if HELD.with(Cell::get) == 0 {
                return Some(self.lock());
            }
            thread::yield_now();
            self.try_lock()
        }
    }

    impl<'a, T> MutexGuard<'a, T> {
        fn new(guard: shuttled::MutexGuard<'a, T>) -> Self {
            HELD.with(|held| held.set(held.get() + 1));
            MutexGuard(guard)
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            // A task that has failed has lost its counter.
            let _ = HELD.try_with(|held| held.set(held.get() - 1));
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }
}
