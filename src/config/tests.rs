//! What the table of parameters promises.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::*;

#[test]
fn defaults_print_as_redis_prints_them() {
    let config = Config::new();
    let print = |name: &str| Parameter::named(name.as_bytes()).unwrap().print(&config);
    assert_eq!(print("PORT"), b"6379");
    assert_eq!(print("client-query-buffer-limit"), b"1073741824");
    assert_eq!(print("proto-max-bulk-len"), b"536870912");
    assert_eq!(print("protected-mode"), b"yes");
    assert_eq!(print("loglevel"), b"notice");
    assert_eq!(print("save"), b"3600 1 300 100 60 10000");
    assert_eq!(Path::new(OsStr::from_bytes(&print("dir"))), std::env::current_dir().unwrap());
}

#[test]
fn values_are_refused_in_the_words_of_redis() {
    let refusal = |name: &str, value: &str| {
        Parameter::named(name.as_bytes()).unwrap().check(value.as_bytes()).unwrap_err().to_string()
    };
    assert_eq!(refusal("port", "x"), "argument couldn't be parsed into an integer");
    assert_eq!(refusal("port", "65536"), "argument must be between 0 and 65535 inclusive");
    assert_eq!(refusal("protected-mode", "1"), "argument must be 'yes' or 'no'");
    assert_eq!(refusal("proto-max-bulk-len", "1tb"), "argument must be a memory value");
    assert_eq!(
        refusal("loglevel", "loud"),
        "argument(s) must be one of the following: debug, verbose, notice, warning, nothing"
    );
    assert_eq!(refusal("save", "60"), "Invalid save parameters");
    assert_eq!(refusal("dbfilename", "a/b"), "dbfilename can't be a path, just a filename");
    assert_eq!(refusal("appenddirname", "a/b"), "appenddirname can't be a path, just a dirname");
    assert_eq!(refusal("appendfilename", ""), "appendfilename can't be empty");
    assert_eq!(refusal("dir", "/nosuch"), "No such file or directory");
    assert_eq!(refusal("dir", file!()), "Not a directory");
}

#[test]
fn permissions_are_octal() {
    let permissions = Parameter::named(b"unixsocketperm").unwrap();
    let config = Config::new();
    config.store(permissions.check(b"700").unwrap());
    assert_eq!((config.unixsocketperm.get(), permissions.print(&config)), (0o700, b"700".to_vec()));
    let (no_octal, beyond) =
        ("argument couldn't be parsed as an octal number", "argument must be between 0 and 777 inclusive");
    for (text, expected) in [("8", no_octal), ("x", no_octal), ("1000", beyond), ("-1", beyond)] {
        assert_eq!(permissions.check(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn a_name_is_that_of_one_parameter() {
    let mut names = HashSet::new();
    for parameter in parameters() {
        assert!(
            parameter.kind.parse(Path::new(""), parameter.default.as_bytes()).is_ok(),
            "{}",
            parameter.name
        );
        assert_eq!(parameter.is_inert(), parameter.help.is_empty(), "{}", parameter.name);
        for name in parameter.names() {
            assert!(names.insert(name), "{name} is there twice");
        }
    }
    for parameter in parameters().filter(|parameter| parameter.changes != Changes::Never) {
        assert!(parameter.names().all(|name| foreign::find(name).is_none()), "{}", parameter.name);
    }
}

#[test]
fn documentation_is_sentences_without_periods() {
    for parameter in parameters() {
        let name = parameter.name;
        for sentence in [parameter.help, parameter.detail].into_iter().filter(|text| !text.is_empty()) {
            assert!(!sentence.ends_with('.') && sentence.len() <= 140, "{name}: {sentence}");
            assert!(sentence.starts_with(|first: char| !first.is_lowercase()), "{name}");
            assert!(!sentence.contains("Whether"), "{name}: {sentence}");
        }
        // A unit goes with numbers, and a difference from Redis with what Redis has.
        let is_number = matches!(parameter.kind, Kind::Integer { .. } | Kind::Frequency);
        assert!(parameter.unit.is_empty() || is_number, "{name}");
        assert!(parameter.difference.is_empty() || parameter.origin == Origin::Redis, "{name}");
        assert!(!parameter.is_inert() || parameter.origin == Origin::Redis, "{name}");
    }
}

#[test]
fn what_has_no_effect_is_stored_and_named() {
    let config = Config::new();
    let delay = Parameter::named(b"Repl-Diskless-Sync-Delay").unwrap();
    assert_eq!((delay.print(&config), config.inert_names()), (b"5".to_vec(), vec![]));
    config.store(delay.check(b"7").unwrap());
    assert_eq!((delay.print(&config), config.inert_names()), (b"7".to_vec(), vec![delay.name]));
    config.store(delay.check(b"5").unwrap());
    assert!(config.inert_names().is_empty());
    let backlog = Parameter::named(b"repl-backlog-size").unwrap();
    config.store(backlog.check(b"1").unwrap());
    assert_eq!(backlog.print(&config), b"16384");
}

#[test]
fn a_synonym_is_stored_as_the_word_that_it_means() {
    let config = Config::new();
    let adjustment = Parameter::named(b"oom-score-adj").unwrap();
    if let Some(why) = crate::platform::oom_score::OBSTACLE {
        assert_eq!(adjustment.check(b"relative").unwrap_err().to_string(), why);
        return;
    }
    for (word, stored) in [("relative", "yes"), ("absolute", "absolute"), ("NO", "no")] {
        config.store(adjustment.check(word.as_bytes()).unwrap());
        assert_eq!(adjustment.print(&config), stored.as_bytes());
    }
}

#[test]
fn relative_paths_begin_in_the_directory_of_the_server() {
    let config = Config::new();
    let directory = Parameter::named(b"dir").unwrap();
    config.store(directory.check_in(Path::new("/usr"), b"bin/../lib").unwrap());
    assert_eq!(
        directory.print(&config),
        Path::new("/usr/lib").canonicalize().unwrap().as_os_str().as_bytes()
    );
    assert!(directory.check_in(Path::new("/usr"), b"nosuch").is_err());
    assert_eq!(config.file_of(&config.aclfile), None);
    for (name, whole) in [(&b"users.acl"[..], config.directory().join("users.acl")), (b"/a/b", "/a/b".into())]
    {
        config.store(Parameter::named(b"aclfile").unwrap().check(name).unwrap());
        let file = config.file_of(&config.aclfile).unwrap();
        assert_eq!((file.to_string().as_bytes(), file.path), (name, whole));
    }
}
