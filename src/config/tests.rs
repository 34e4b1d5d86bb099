//! What the table of parameters promises.

use super::*;

#[test]
fn the_table_is_sorted_and_its_defaults_print_as_redis_prints_them() {
    assert!(PARAMETERS.is_sorted_by_key(|parameter| parameter.name));
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
        "argument(s) must be one of the following: debug, verbose, notice, warning"
    );
    assert_eq!(refusal("save", "60"), "Invalid save parameters");
    assert_eq!(refusal("dbfilename", "a/b"), "dbfilename can't be a path, just a filename");
    assert_eq!(refusal("appenddirname", "a/b"), "appenddirname can't be a path, just a dirname");
    assert_eq!(refusal("appendfilename", ""), "appendfilename can't be empty");
    assert_eq!(refusal("dir", "/nosuch"), "No such file or directory");
    assert_eq!(refusal("dir", "/proc/self/exe"), "Not a directory");
}

#[test]
fn sizes_are_read_with_their_units() {
    for (text, bytes) in
        [("0", 0), ("1b", 1), ("1K", 1000), ("1kb", 1024), ("2Gb", 2 << 30), ("5m", 5_000_000)]
    {
        assert_eq!(parse_bytes(text.as_bytes()), Some(bytes), "{text}");
    }
    for text in ["", "kb", "-1", "1tb", "1 mb", "99999999999gb"] {
        assert_eq!(parse_bytes(text.as_bytes()), None, "{text}");
    }
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
