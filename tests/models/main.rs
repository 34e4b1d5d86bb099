//! The documents' algorithms for locks, each walked through in every order in which its steps can happen.
//!
//! A test of the running server shows what happened; a model checker (stateright) shows what can. Each module
//! holds one algorithm, written down as plainly as it can be: what a client knows, what the server keeps,
//! which steps there are. Two clients never do something in the same instant, but any one of them may do its
//! next step at any time, or never; time is a small number of ticks, and a tick may pass at any time. Each
//! test says what must be found and what must not; "holds" means that every state that can be reached was
//! seen. The models link nothing of Keyfast: they are about clients, and true of any server that executes
//! each command as a whole. `tests/commands/race.rs` shows that ours does.
//!
//! `cargo test --test models -- --nocapture` prints each way into trouble, step by step.
//!
//! What was checked, what came out, and what it means for you:
//!
//! - **SETNX with a timestamp, DEL of a lock whose time is over** (`setnx_del`; 3 clients). Two clients get
//!   the lock, in ten steps, as the documents say. Never take a lock over by deleting it.
//! - **SETNX, GET, GETSET to take over** (`getset`; 3 and 4 clients). One client at a time gets it, while
//!   requests take no time and a holder looks at the clock before it deletes. A slow loser's GETSET puts its
//!   older timestamp over the winner's and so shortens the winner's lock, which the documents call no
//!   problem: a holder must stop before its own timestamp, by the longest delay of a request, or twice that
//!   if it releases with DEL; then it is alone. Where a request may take as long as the timeout, nothing
//!   helps: the loser writes a time that has passed, and a third takes the lock at once. Use SET NX PX
//!   instead.
//! - **SETNX, then EXPIRE** (`setnx_expire`; 2 and 3 clients that crash). A crash between the two leaves the
//!   lock for ever: no action of a client changes anything any more. With SET NX PX it becomes free,
//!   whichever client crashes. Set the expiry in the command that takes the lock.
//! - **SET NX PX, released with DEL** (`set_nx_px`; 3 clients). A late DEL deletes the next holder's lock,
//!   and a third gets it while the second holds it; GET and compare before DEL is no better. Do not release
//!   with DEL.
//! - **SET NX PX, released with compare-and-delete** (`set_nx_px`; 3 and 4 clients). No client deletes
//!   another's lock, and no two clients believe *within their time* that they hold it, however late requests
//!   and replies are. Count your time from before the request: counted from the reply, two hold the lock.
//!   This is the lock to use (DELIFEQ).
//! - **The same, with a holder that outlives its time** (`fencing`; 3 clients, up to 4 grants). It works
//!   beside the next holder and overwrites what that one wrote; no lock with an expiry prevents it. With a
//!   fencing token that the resource checks at each write, no write of an older holder follows one of a
//!   newer; if it is checked at each read, too, no update is lost. A late write still gets through while
//!   no newer holder has been there.
//! - **LOCK ACQUIRE, which answers the number** (`lock`; 3 clients, up to 4 grants, a restart). The number is
//!   drawn in the step that grants the lock, and is told by its token only: no write of an older holder
//!   follows one of a newer, numbers grow, and the first in line is granted in the step that frees the lock.
//!   Had by a second command without a token (SET NX PX, then LOCKS GET), the number is the next holder's,
//!   and lets the late one in; so do numbers that begin anew after a restart, and a token that several share.
//! - **Permits: LOCK ACQUIRE … SHARED and LIMIT n** (`permits`; 4 clients). Readers hold the lock together, a
//!   writer alone, and no client is granted it before one that came earlier. Readers that are let in while
//!   others wait overtake a writer; those behind one that has left the line wait in vain, unless that serves
//!   them; and a reader that waits for the whole lock waits for itself, so that is refused.
//! - **Several locks at once: LOCK ACQUIRE … ALSO** (`several`; 3 clients, one of which holds one lock and
//!   asks for another). A client that asks for all at once is in no deadlock, since it keeps no free lock
//!   from others while it waits; for that it may be overtaken. If the first in a line let no other pass,
//!   there would be a deadlock out of a free lock.
//! - **A lock that moves to another server** (`moving`; 2 servers, up to 3 grants and 2 moves). Its numbers
//!   go back if each server counts from the clock of its start, and at times if it keeps to the clock. If the
//!   lock brings its number along, they only grow, whatever the clocks show.
//! - **Redlock** (`redlock`; 3 servers with 2 and 3 clients, 5 with 2). One client at a time holds the lock.
//!   One restart of one server that forgets gives it to two; if servers stay away after a restart for as long
//!   as locks live, any number of restarts gives it to one; if they are back any sooner, to two.

mod explore;
mod fencing;
mod getset;
mod lock;
mod moving;
mod permits;
mod redlock;
mod set_nx_px;
mod setnx_del;
mod setnx_expire;
mod several;
