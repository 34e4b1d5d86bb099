//! What the instances of a process share: work that needs a thread, but not one for each instance.
//!
//! An instance borrows from its host what it needs now and then, so an idle one has no thread. It is the
//! smaller for it, too: see [`Scale`](crate::instance::Scale). What serves sockets is above all this, in
//! [`server`](crate::server).

mod freeing;

pub use freeing::Freeing;

/// What some instances share. A server of its own has a host of its own.
#[derive(Debug, Default)]
pub struct Host {
    /// The thread that frees their large garbage.
    pub freeing: Freeing,
}
