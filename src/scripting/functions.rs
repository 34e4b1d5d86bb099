//! The libraries of functions: their code, and the functions that it registers.
//!
//! The compiled functions are in the [`Loader`]. A change is all or nothing: the caller changes a copy of
//! [`Libraries`], which replaces the original when nothing can fail any more. Copies share the libraries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::Scripting;
use super::loader::Loader;
pub(crate) use super::registered::{BYTES_MAX, FUNCTIONS_MAX, Function};
use super::registered::{Text, valid_name};
use crate::resp::OwnedRequest;

/// The most libraries. Redis has no limit; here a change takes time for each library.
pub(crate) const LIBRARIES_MAX: usize = 1_000;
/// How long a library may take to register its functions. Redis: the same.
const LOAD_TIME_MAX: Duration = Duration::from_millis(500);
/// How long loading all libraries of a payload may take, or each library of a file. Redis has no limit.
const RESTORE_TIME_MAX: Duration = Duration::from_secs(5);

/// A library that has been loaded.
#[derive(Debug)]
pub struct Library {
    /// The library's name.
    pub name: String,
    /// Its code, with the first line.
    pub code: Vec<u8>,
    /// Its functions, as they were registered.
    pub functions: Vec<Arc<Function>>,
}

impl Library {
    fn bytes(&self) -> usize {
        self.code.len() + self.functions.iter().map(|function| function.bytes()).sum::<usize>()
    }
}

/// What happens to the existing libraries when others are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They stay. If one has the same name as a new one, nothing is restored.
    Append,
    /// They stay, but new ones replace those of the same name.
    Replace,
    /// They are deleted first.
    Flush,
}

/// The libraries of a server.
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    by_name: BTreeMap<String, Arc<Library>>,
    /// All functions by their names in lower case.
    functions: HashMap<String, Arc<Function>>,
    bytes: usize,
}

impl Libraries {
    /// All libraries, by name.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// The function of this name; case does not matter.
    pub fn function(&self, name: &[u8]) -> Option<Arc<Function>> {
        self.functions.get(&String::from_utf8_lossy(name).to_ascii_lowercase()).cloned()
    }

    /// The number of functions in all libraries.
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// Bytes of the code and of the facts about functions.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn names_of_functions(&self) -> impl Iterator<Item = &str> {
        self.functions.values().map(|function| function.name.as_str())
    }

    fn remove(&mut self, name: &str) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        self.bytes -= library.bytes();
        for function in &library.functions {
            self.functions.remove(&function.name.to_ascii_lowercase());
        }
        true
    }

    /// Adds a library. Its name must be new.
    fn insert(&mut self, library: Arc<Library>) -> Result<(), Text> {
        for function in &library.functions {
            let known = self.functions.insert(function.name.to_ascii_lowercase(), Arc::clone(function));
            if known.is_some() {
                return Err(format!("ERR Function {} already exists", function.name).into());
            }
        }
        self.bytes += library.bytes();
        self.by_name.insert(library.name.clone(), library);
        let is_too_much = self.by_name.len() > LIBRARIES_MAX
            || self.functions.len() > FUNCTIONS_MAX
            || self.bytes > BYTES_MAX;
        if is_too_much { Err(too_much()) } else { Ok(()) }
    }

    /// Compiles a library and adds it. Its name must be new. Returns its name.
    fn load(&mut self, loader: &mut Loader, header: Header<'_>, text: &[u8]) -> Result<String, Text> {
        let Header { name, code } = header;
        if self.by_name.contains_key(&name) {
            return Err(format!("ERR Library '{name}' already exists").into());
        }
        if self.bytes + text.len() > BYTES_MAX {
            return Err(too_much());
        }
        let functions = loader.load(code)?.into_iter().map(Arc::new).collect::<Vec<_>>();
        if functions.is_empty() {
            return Err(b"ERR No functions registered".to_vec());
        }
        self.insert(Arc::new(Library { name: name.clone(), code: text.to_vec(), functions }))?;
        Ok(name)
    }

    /// Adds other libraries, by the policy.
    fn join(mut self, others: Libraries, policy: Policy) -> Result<Libraries, Text> {
        if policy == Policy::Flush {
            return Ok(others);
        }
        for name in others.by_name.keys() {
            if self.remove(name) && policy == Policy::Append {
                return Err(format!("ERR Library {name} already exists").into());
            }
        }
        for library in others.by_name.into_values() {
            self.insert(library)?;
        }
        Ok(self)
    }
}

fn too_much() -> Text {
    format!(
        "ERR Too many libraries: there may be {LIBRARIES_MAX} with {FUNCTIONS_MAX} functions and {} MiB of code",
        BYTES_MAX >> 20
    )
    .into()
}

/// The first line of a library.
#[derive(Debug)]
struct Header<'a> {
    name: String,
    /// The code after the first line, from its line end on, so that lines keep their numbers.
    code: &'a [u8],
}

impl Header<'_> {
    /// Parses a first line like `#!lua name=mylib`.
    fn of(text: &[u8]) -> Result<Header<'_>, Text> {
        let fixed = |text: &str| Text::from(text);
        if !text.starts_with(b"#!") {
            return Err(fixed("ERR Missing library metadata"));
        }
        let invalid = || fixed("ERR Invalid library metadata");
        let end = text.iter().position(|byte| *byte == b'\n').ok_or_else(invalid)?;
        let words = OwnedRequest::of_line(&text[..end]).ok_or_else(invalid)?;
        let words = words.request().ok_or_else(invalid)?;
        let mut name: Option<&[u8]> = None;
        for word in words.from(1) {
            let Some((_, value)) =
                word.split_at_checked(5).filter(|(key, _)| key.eq_ignore_ascii_case(b"name="))
            else {
                return Err([b"ERR Invalid metadata value given: ", word].concat());
            };
            if name.replace(value).is_some() {
                return Err(fixed("ERR Invalid metadata value, name argument was given multiple times"));
            }
        }
        let name = valid_name(name.ok_or_else(|| fixed("ERR Library name was not given"))?)?;
        let engine = words.name().strip_prefix(b"#!").unwrap_or_default();
        if !engine.eq_ignore_ascii_case(b"lua") {
            return Err([b"ERR Engine '", engine, b"' not found"].concat());
        }
        Ok(Header { name, code: &text[end..] })
    }
}

/// Changes of libraries. The caller has the turn to run scripts, so there are no other changes meanwhile.
impl Scripting {
    /// Loads a library. With `replaces` it may replace one of the same name. Returns its name. A library from
    /// a log may take longer: it was loaded once before, on a machine that was less busy.
    ///
    /// # Errors
    ///
    /// With the text of Redis; nothing has changed then.
    pub fn load_library(&self, text: &[u8], replaces: bool, is_replay: bool) -> Result<String, Vec<u8>> {
        let header = Header::of(text)?;
        let mut libraries = self.libraries().clone();
        if replaces {
            libraries.remove(&header.name);
        }
        self.change_libraries(if is_replay { RESTORE_TIME_MAX } else { LOAD_TIME_MAX }, |loader| {
            let name = libraries.load(loader, header, text)?;
            Ok((libraries, name))
        })
    }

    /// Loads several libraries (FUNCTION RESTORE).
    ///
    /// # Errors
    ///
    /// The error of an item of `texts`, or a text of Redis. Nothing has changed then.
    pub fn restore_libraries(
        &self,
        texts: impl Iterator<Item = Result<Vec<u8>, Vec<u8>>>,
        policy: Policy,
    ) -> Result<(), Vec<u8>> {
        self.change_libraries(RESTORE_TIME_MAX, |loader| {
            let mut restored = Libraries::default();
            for text in texts {
                let text = text?;
                restored.load(loader, Header::of(&text)?, &text)?;
            }
            let libraries = self.libraries().clone();
            Ok((libraries.join(restored, policy)?, ()))
        })
    }

    /// Replaces all libraries by those of a file. Each has its own time limit, so that a file with many
    /// libraries is not refused.
    ///
    /// # Errors
    ///
    /// With a text of Redis and the name of the library. Nothing has changed then.
    pub fn load_libraries(&self, texts: &[Vec<u8>]) -> Result<(), Vec<u8>> {
        self.change_libraries(RESTORE_TIME_MAX, |loader| {
            let mut loaded = Libraries::default();
            for text in texts {
                let header = Header::of(text)?;
                let name = header.name.clone();
                let _limit = self.running.limit(RESTORE_TIME_MAX);
                let result = loaded.load(loader, header, text);
                result.map_err(|why| [&why, format!(" (library '{name}')").as_bytes()].concat())?;
            }
            Ok((loaded, ()))
        })
    }

    /// Deletes a library; returns whether it existed.
    pub fn delete_library(&self, name: &[u8]) -> bool {
        let mut libraries = self.libraries().clone();
        if !libraries.remove(&String::from_utf8_lossy(name)) {
            return false;
        }
        self.keep_only(libraries);
        true
    }

    /// Deletes all libraries.
    pub fn forget_libraries(&self) {
        self.keep_only(Libraries::default());
    }

    fn keep_only(&self, libraries: Libraries) {
        self.with(|interpreter| interpreter.loader().keep_only(libraries.names_of_functions()));
        *self.libraries() = libraries;
    }

    fn change_libraries<T>(
        &self,
        time_max: Duration,
        change: impl FnOnce(&mut Loader) -> Result<(Libraries, T), Text>,
    ) -> Result<T, Text> {
        let _limit = self.running.limit(time_max);
        self.with(|interpreter| {
            let loader = interpreter.loader();
            let changed = change(loader).and_then(|(libraries, answer)| {
                loader.make_callable(libraries.names_of_functions())?;
                *self.libraries() = libraries;
                Ok(answer)
            });
            loader.tidy_up();
            interpreter.tidy_up();
            changed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripting::shebang::Flags;

    fn library(name: &str, functions: &[&str]) -> Arc<Library> {
        let function = |name: &&str| {
            Arc::new(Function { name: (*name).to_owned(), description: None, flags: Flags::default() })
        };
        let functions = functions.iter().map(function).collect();
        Arc::new(Library { name: name.to_owned(), code: vec![b'x'; 100], functions })
    }

    fn libraries(all: &[(&str, &[&str])]) -> Libraries {
        let mut libraries = Libraries::default();
        all.iter().for_each(|(name, functions)| libraries.insert(library(name, functions)).unwrap());
        libraries
    }

    fn names(libraries: &Libraries) -> String {
        let mut functions: Vec<&str> = libraries.names_of_functions().collect();
        functions.sort_unstable();
        let libraries: Vec<&str> = libraries.all().map(|library| library.name.as_str()).collect();
        format!("{} {}", libraries.join(","), functions.join(","))
    }

    #[test]
    fn libraries_are_joined_as_the_policy_says() {
        let joined = |policy| {
            let before = libraries(&[("a", &["f"]), ("b", &["g"])]);
            let joined = before.join(libraries(&[("b", &["h"]), ("c", &["i"])]), policy);
            joined.map(|joined| names(&joined)).map_err(|text| String::from_utf8(text).unwrap())
        };
        assert_eq!(joined(Policy::Append), Err("ERR Library b already exists".to_owned()));
        assert_eq!(joined(Policy::Replace), Ok("a,b,c f,h,i".to_owned()));
        assert_eq!(joined(Policy::Flush), Ok("b,c h,i".to_owned()));
    }

    #[test]
    fn functions_have_one_name_in_any_case() {
        let mut known = libraries(&[("a", &["Sum"])]);
        assert_eq!(known.function(b"sUM").unwrap().name, "Sum");
        assert!(known.function(b"su\xff").is_none());
        assert_eq!(known.insert(library("b", &["SUM"])), Err(b"ERR Function SUM already exists".to_vec()));
    }

    #[test]
    fn bytes_are_counted_until_a_library_goes() {
        let mut known = libraries(&[("a", &["f"]), ("b", &["gg"])]);
        assert_eq!(known.bytes(), 203);
        assert!(known.remove("b") && !known.remove("b"));
        assert_eq!((known.bytes(), known.function_count()), (101, 1));
    }

    #[test]
    fn there_is_a_limit_to_everything() {
        let mut known = Libraries::default();
        for number in 0..LIBRARIES_MAX {
            known.insert(library(&format!("l{number}"), &[&format!("f{number}")])).unwrap();
        }
        assert_eq!(known.clone().insert(library("one_more", &["g"])), Err(too_much()));
        assert!(known.remove("l0"));
        let many: Vec<String> =
            (0..=FUNCTIONS_MAX - LIBRARIES_MAX).map(|number| format!("g{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(known.clone().insert(library("functions", &many)), Ok(()));
        assert_eq!(
            known.clone().insert(library("functions", &[&many[..], &["h"]].concat())),
            Err(too_much())
        );
        let long = Library { name: "long".to_owned(), code: vec![0; BYTES_MAX], functions: Vec::new() };
        assert_eq!(known.insert(Arc::new(long)), Err(too_much()));
    }
}
