//! Libraries of a few lines in C that a server is started with: they stand in for a system that fails.

use std::process::Command;

use crate::folder::Folder;

/// Such a library. It goes with this value.
pub struct Preloaded(Folder);

const LIBRARY: &str = "library.so";

impl Preloaded {
    /// Compiles it, with the compiler that building Keyfast needs.
    pub fn compile(name: &str, code: &str) -> Preloaded {
        let folder = Folder::new(&format!("preloaded-{name}"));
        let (source, library) = (folder.write("library.c", code), folder.file(LIBRARY));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o", &library, &source, "-ldl", "-lpthread"]);
        let compiled = compiler.output().expect("a C compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        Preloaded(folder)
    }

    /// Has a command load it that starts in the folder of a test. `LD_PRELOAD` takes no path with a blank, so
    /// this one leads from folder to folder.
    pub fn preload<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let folder = self.0.path().file_name().and_then(|name| name.to_str()).expect("a name");
        command.env("LD_PRELOAD", format!("../{folder}/{LIBRARY}"))
    }
}
