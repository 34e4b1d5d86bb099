//! Nodes that a collection has let go, to be freed in small steps.
//!
//! To free ten million elements takes 0.1 s, so the thread that empties a collection does not do it: it gets
//! the [`Remains`], which another thread frees. A step takes nodes apart from the top: a page is freed, and a
//! branch leaves its kids to later steps. What a copy has, too, is left to the copy.
//!
//! Steps are measured in bytes, since pages differ in size. Only a page of one large record may take longer:
//! the allocator frees it in one go.

use std::fmt;
use std::sync::Arc;

use super::page::shared_bytes;

/// A node counts as at least this number of bytes, since to let it go takes time even if a copy keeps it.
const NODE_BYTES_MIN: usize = 64;

/// Nodes to be freed. Dropped, they are freed at once.
#[derive(Default)]
pub struct Remains {
    nodes: Vec<Rest>,
}

/// A node of any collection.
pub(super) enum Rest {
    Page(Arc<[u8]>),
    Branch(Arc<dyn Branch>),
}

/// A branch of any collection.
pub(super) trait Branch: Send + Sync {
    /// Appends the kids if no copy has the branch. Of several owners that let go at the same time, exactly
    /// one gets the kids. Returns the bytes of the branch alone, or 0 if it was left to a copy.
    fn take_apart(self: Arc<Self>, kids: &mut Vec<Rest>) -> usize;
}

impl Remains {
    /// What remains of these nodes.
    pub(super) fn of<N: Into<Rest>>(nodes: impl IntoIterator<Item = N>) -> Remains {
        Remains { nodes: nodes.into_iter().map(N::into).collect() }
    }

    /// Frees about `bytes` bytes, and at least one node; returns whether nothing is left.
    pub fn free_some(&mut self, bytes: usize) -> bool {
        let mut freed_bytes = 0;
        while let Some(node) = self.nodes.pop() {
            let node_bytes = match node {
                Rest::Page(page) => shared_bytes(page.len()),
                Rest::Branch(branch) => branch.take_apart(&mut self.nodes),
            };
            freed_bytes += node_bytes.max(NODE_BYTES_MIN);
            if freed_bytes >= bytes {
                break;
            }
        }
        self.is_empty()
    }

    /// True if nothing is left to free.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Passes the nodes on to the kids of a larger collection.
    pub(super) fn give_to(mut self, kids: &mut Vec<Rest>) {
        kids.append(&mut self.nodes);
    }

    /// Takes over what remains of another collection.
    pub fn append(&mut self, mut other: Remains) {
        self.nodes.append(&mut other.nodes);
    }
}

impl fmt::Debug for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remains").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}
