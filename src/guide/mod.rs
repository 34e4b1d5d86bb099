//! The pages that the README links to: for users, for operators, and for those who change the code.
//!
//! Each page is a Markdown file in this folder, which a forge shows. It is also the documentation of a module
//! here, which docs.rs shows. The pages lie under `src` because they are part of the crate: what describes a
//! version travels with that version. The modules hold no code.
//!
//! A link between pages is a reference, such as `[durability]`. Its definition at the foot of a page names a
//! file, for forges. For docs.rs the same names are defined below as modules, before each page: the first
//! definition of a name counts. `tests/server/pages.rs` checks both, and `cargo doc` resolves these.

macro_rules! pages {
    ($($name:ident)*) => {
        $(
            #[doc = "[architecture]: crate::guide::architecture"]
            #[doc = "[benchmarks]: crate::guide::benchmarks"]
            #[doc = "[commands]: crate::guide::commands"]
            #[doc = "[compatibility]: crate::guide::compatibility"]
            #[doc = "[configuration]: crate::guide::configuration"]
            #[doc = "[docker]: crate::guide::docker"]
            #[doc = "[durability]: crate::guide::durability"]
            #[doc = "[installing]: crate::guide::installing"]
            #[doc = "[locks]: crate::guide::locks"]
            #[doc = "[metrics]: crate::guide::metrics"]
            #[doc = "[security]: crate::guide::security"]
            #[doc = "[store]: crate::guide::store"]
            #[doc = "[testing]: crate::guide::testing"]
            #[doc = ""]
            #[doc = include_str!(concat!(stringify!($name), ".md"))]
            pub mod $name {}
        )*
    };
}

pages! {
    installing
    commands
    compatibility
    configuration
    locks
    testing
    docker
    durability
    security
    metrics
    store
    benchmarks
    architecture
}
