//! What the program, the tests and the benchmarks use of the inside, by its paths. This is no part of the
//! interface: it changes at any time.

#![allow(missing_docs)]

pub use crate::REDIS_VERSION;

pub mod allocator {
    pub use crate::allocator::{Account, Counted, used_bytes};
}
pub mod clients {
    pub use crate::clients::{Address, Registration};
}
pub mod commands {
    pub use crate::commands::{all, known};
    pub mod execution {
        pub use crate::commands::execution::replay;
    }
    pub mod facts {
        pub use crate::commands::facts::{Argument, ArgumentKind, Command, Flags, Group, Run};
        pub mod lookup {
            pub use crate::commands::facts::lookup::{Finder, find_full, own_names};
        }
    }
    pub mod unsupported {
        pub use crate::commands::unsupported::{Absent, all};
    }
}
pub mod config {
    pub use crate::config::{Changes, Config, Kind, Origin, Owner, Parameter, parameters};
    pub mod table {
        pub use crate::config::table::{FAMILIES, Family, inert};
    }
}
pub mod dispatch {
    pub use crate::dispatch::{Plan, execute};
    pub mod meter {
        pub use crate::dispatch::meter::Meter;
    }
}
pub mod dump {
    pub use crate::dump::{CHECKSUM, Compressor, VERSION};
    pub mod strings {
        pub use crate::dump::strings::{write_length, write_string};
    }
}
pub mod host {
    pub use crate::host::{Host, Shared};
}
pub mod instance {
    pub use crate::instance::{Hooks, Instance, KnownCommands, Scale};
}
pub mod keyspace {
    pub use crate::keyspace::{Expiry, Keyspace, Outcome, Shape};
}
pub mod options {
    pub use crate::options::{Asked, Startup, parse};
}
pub mod persistence {
    pub mod check {
        pub use crate::persistence::check::{asked, run};
    }
    pub mod rdb {
        pub use crate::persistence::rdb::{Form, Item, Reader, Writer};
    }
}
pub mod platform {
    pub mod heap {
        pub use crate::platform::heap::{prepare, restart_with_tuned_memory};
    }
    pub mod host_names {
        pub use crate::platform::host_names::prepare;
    }
}
pub mod process {
    pub use crate::process::run;
}
pub mod progress {
    pub use crate::progress::{Indicator, Progress, Report, Unit, allow_bars, beside_bar};
}
pub mod resp {
    pub use crate::resp::{
        Limits, OwnedRequest, Protocol, ProtocolError, Reply, Request, RequestReader, Sent, tree,
    };
}
pub mod scripting {
    pub use crate::scripting::{Callable, Failure, Host, Interpreter, Invocation, NoCommand, Refused};
    pub mod running {
        pub use crate::scripting::running::Killed;
    }
    pub mod shebang {
        pub use crate::scripting::shebang::Flags;
    }
}
pub mod server {
    pub use crate::server::Server;
}
pub mod session {
    pub use crate::session::Session;
}
pub mod types {
    pub use crate::types::ALL;
    pub mod strings {
        pub use crate::types::strings::Text;
    }
}
pub mod upkeep {
    pub use crate::upkeep::{Upkeep, start};
}
pub mod values {
    pub use crate::values::Limits;
    pub mod tree {
        pub use crate::values::tree::{Map, Ranking, Remains, Sequence};
    }
}
pub mod cli {
    pub use crate::cli::{asked, run};
}
