//! Parameters from everywhere: files, standard input, the command line, the environment, and back into a
//! file.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use support::client::Client;
use support::folder::{Folder, wait_for_text};
use support::server::{Server, program};

/// Runs the program, which must fail, and returns what it prints to standard error.
#[track_caller]
fn complaint(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("the program runs");
    assert_eq!(status.code(), Some(1));
    String::from_utf8_lossy(&stderr).into_owned()
}

/// The value of a parameter.
#[track_caller]
fn parameter(client: &mut Client, name: &str) -> String {
    let items = client.cmd(["CONFIG", "GET", name]).items();
    assert_eq!(items.len(), 2, "{name}");
    items[1].to_string().trim_matches('"').to_owned()
}

#[test]
fn a_misspelt_variable_for_the_password_stops_the_start_and_any_other_is_told() {
    let folder = Folder::new("misspelt-variables");
    let options = ["--bind", "127.0.0.1", "--port", "0"];
    let complaint = complaint(folder.command().env("KEYFAST_REQUIREPAS", "secret").args(options));
    assert_eq!(
        complaint,
        "keyfast: the environment variable KEYFAST_REQUIREPAS is no parameter, did you mean \
         KEYFAST_REQUIREPASS? Rename the variable, or remove it: a server without its secret may be open to \
         all\n"
    );
    // The password of another program, which the server has by another way.
    let mut command = folder.command();
    command.env("KEYFAST_PASSWORD", "secret").env("KEYFAST_MAXMEMRY", "1gb").args(options);
    let server = Server::run(command.args(["--requirepass", "secret"]), 0);
    server.wait_for_output("KEYFAST_PASSWORD is no parameter, did you mean KEYFAST_REQUIREPASS?");
    server.wait_for_output("KEYFAST_MAXMEMRY is no parameter, did you mean KEYFAST_MAXMEMORY?");
    server.client().line("PING").is_error("NOAUTH Authentication required.");
}

/// The directives of the file that Debian installs with redis-server 7.0.15, all of them, with its paths.
const STOCK_FILE: &str = include_str!("stock.conf");

#[test]
fn a_stock_file_starts_it_as_it_is() {
    let folder = Folder::new("stock");
    let directories = format!("logfile '{0}/log'\npidfile '{0}/pid'\ndaemonize no\n", folder.file(""));
    // The package makes this folder, and `dir` enters it at once; a machine without the package has none.
    let (installed, own) = ("dir /var/lib/redis\n", format!("dir '{}'\n", folder.file("")));
    assert!(STOCK_FILE.contains(installed));
    folder.write("redis.conf", &[&STOCK_FILE.replace(installed, &own), &*directories].concat());
    folder.write("log", "");
    // Its log goes to a file, so that it cannot be waited for by its output.
    let port = support::server::free_port();
    let mut command = folder.command();
    let mut child = command.args(["redis.conf", "--port", &port.to_string()]).spawn().expect("it starts");
    let log = wait_for_text(&folder.file("log"), "Ready to accept connections tcp");
    assert!(!log.contains("have no effect"), "everything is as by default in Redis:\n{log}");
    let mut client = Client::connect(([127, 0, 0, 1], port).into());
    client.line("PING").is_simple("PONG");
    assert_eq!(parameter(&mut client, "tcp-keepalive"), "300");
    client.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(child.wait().expect("an end").success());
}

#[test]
fn arguments_overrule_standard_input_which_overrules_the_file_which_overrules_the_environment() {
    let folder = Folder::new("precedence");
    folder.write("redis.conf", "maxclients 1002\ntimeout 2\ntcp-keepalive 2\n");
    folder.write("input", "timeout 3\ntcp-keepalive 3");
    let mut command = folder.command();
    for name in ["KEYFAST_MAXCLIENTS", "KEYFAST_TIMEOUT", "KEYFAST_TCP_KEEPALIVE", "KEYFAST_SLOWLOG_MAX_LEN"]
    {
        command.env(name, "1001");
    }
    command.stdin(fs::File::open(folder.file("input")).unwrap());
    command.args(["redis.conf", "--tcp-keepalive", "4", "--bind", "127.0.0.1", "--port", "0", "-"]);
    let mut client = Server::run(&mut command, 0).into_client();
    for (name, value) in
        [("slowlog-max-len", "1001"), ("maxclients", "1002"), ("timeout", "3"), ("tcp-keepalive", "4")]
    {
        assert_eq!(parameter(&mut client, name), value, "{name}");
    }
    assert_eq!(client.info("config_file"), folder.file("redis.conf"));
}

#[test]
fn a_password_may_be_in_the_environment_or_in_a_file() {
    let folder = Folder::new("password");
    folder.write("secret", "in a file\n");
    for (name, value, password) in
        [("REDIS_PASSWORD", "secret", "secret"), ("REDIS_PASSWORD_FILE", "secret", "in a file")]
    {
        let mut command = folder.command();
        command.env(name, value).args(["--bind", "127.0.0.1", "--port", "0"]);
        let mut client = Server::run(&mut command, 0).into_client();
        client.line("PING").is_error("NOAUTH Authentication required.");
        client.cmd(["AUTH", password]).is_ok();
    }
    folder.write("empty", "\n");
    let refused = complaint(folder.command().env("REDIS_PASSWORD_FILE", "empty"));
    assert_eq!(refused, "keyfast: REDIS_PASSWORD_FILE: empty: there is no password in it\n");
    let refused = complaint(folder.command().env("KEYFAST_DIR", "/nosuch"));
    assert_eq!(refused, "keyfast: invalid value of KEYFAST_DIR: '/nosuch': No such file or directory\n");
    let refused = complaint(folder.command().env("KEYFAST_PORT", "x"));
    let expected = "keyfast: invalid value of KEYFAST_PORT: argument couldn't be parsed into an integer\n";
    assert_eq!(refused, expected);
}

#[test]
fn a_mistake_is_told_with_its_line_as_redis_tells_it() {
    let folder = Folder::new("mistakes");
    folder.write("inner.conf", "timeout 1\nport 70000\n");
    folder.write("outer.conf", "timeout 1\n\ninclude inner.conf\n");
    folder.write("endless.conf", "\ninclude endless.conf\n");
    folder.write("circle.conf", "include parts/*.conf\n");
    std::fs::create_dir(folder.file("parts")).unwrap();
    folder.write("parts/1.conf", "timeout 1\ninclude circle.conf\n");
    folder.write("absent.conf", "timeout 1\ninclude /nosuch/inner.conf\n");
    folder.write("comment.conf", "timeout 1 # second\n");
    let fatal = concat!("\n*** FATAL CONFIG FILE ERROR (Keyfast ", env!("CARGO_PKG_VERSION"), ") ***\n");
    let range = "argument must be between 0 and 65535 inclusive";
    folder.write("unknown.conf", "\nportt 1\n");
    for (arguments, expected) in [
        (
            &["unknown.conf"][..],
            format!(
                "{fatal}Reading the configuration file, at line 2\n>>> 'portt 1'\n\
                 Bad directive or wrong number of arguments, did you mean 'port'?\n"
            ),
        ),
        (
            &["outer.conf"],
            format!(
                "{fatal}Reading the configuration file, at line 2 of inner.conf\n>>> 'port 70000'\n{range}\n"
            ),
        ),
        (
            &["endless.conf"],
            format!(
                "{fatal}Reading the configuration file, at line 2\n>>> 'include endless.conf'\n\
                 {0}:2 includes {0} again\n",
                folder.file("endless.conf")
            ),
        ),
        (
            &["circle.conf"],
            format!(
                "{fatal}Reading the configuration file, at line 2 of parts/*.conf\n\
                 >>> 'include circle.conf'\nparts/*.conf:2 includes {} again\n",
                folder.file("circle.conf")
            ),
        ),
        (
            &["absent.conf"],
            format!(
                "keyfast: Fatal error, can't open config file '/nosuch/inner.conf': No such file or \
                 directory (include in {}:2)\n",
                folder.file("absent.conf")
            ),
        ),
        (
            &["comment.conf"],
            format!(
                "{fatal}Reading the configuration file, at line 1\n>>> 'timeout 1 # second'\n\
                 wrong number of arguments: timeout needs one value; a comment needs a line of its own\n"
            ),
        ),
        // A user without a file is not sent to look for one.
        (&["--portt", "1"], "keyfast: unknown option --portt, did you mean --port?\n".to_owned()),
        (&["--nosuch", "1"], "keyfast: unknown option --nosuch\n".to_owned()),
        (&["-p", "1"], "keyfast: unknown option -p, did you mean --port?\n".to_owned()),
        (&["--portt=1"], "keyfast: unknown option --portt=1, did you mean --port?\n".to_owned()),
        (&["--port", "70000"], format!("keyfast: option --port: {range}\n")),
        (&["--port"], "keyfast: option --port: wrong number of arguments: port needs one value\n".to_owned()),
        (
            &["--include"],
            "keyfast: option --include: Bad directive or wrong number of arguments: include needs one file\n"
                .to_owned(),
        ),
        (
            &["--include", "/nosuch/inner.conf"],
            "keyfast: Fatal error, can't open config file '/nosuch/inner.conf': No such file or directory \
             (option --include)\n"
                .to_owned(),
        ),
        (
            &["--dir", "nosuch"],
            format!("keyfast: option --dir: '{}': No such file or directory\n", folder.file("nosuch")),
        ),
        (
            &["--logfile", "/nosuch/log"],
            "keyfast: can't open the log file '/nosuch/log': No such file or directory\n".to_owned(),
        ),
    ] {
        assert_eq!(complaint(folder.command().args(arguments)), expected);
    }
    let missing = complaint(folder.command().arg("nosuch.conf"));
    let path = folder.file("nosuch.conf");
    let expected = "No such file or directory";
    assert_eq!(missing, format!("keyfast: Fatal error, can't open config file '{}': {expected}\n", path));
    for (word, hint) in [
        ("help", "for help: keyfast --help"),
        ("version", "for the version: keyfast --version"),
        ("server", "to start a server: keyfast"),
        ("nosuch", "for help: keyfast --help"),
    ] {
        let path = folder.file(word);
        assert_eq!(
            complaint(folder.command().arg(word)),
            format!("keyfast: Fatal error, can't open config file '{path}': {expected}; {hint}\n")
        );
    }
}

#[test]
fn what_a_user_would_miss_stops_the_start_and_names_the_option_that_does_not() {
    let folder = Folder::new("missing");
    folder.write("redis.conf", "port 0\n\nreplicaof 10.0.0.1 6379\n");
    let refused = complaint(folder.command().arg("redis.conf"));
    assert!(
        refused.contains("at line 3\n>>> 'replicaof 10.0.0.1 6379'\nKeyfast has no replication"),
        "{refused}"
    );
    assert!(
        refused.ends_with("Remove this line, or add '--ignore-unsupported yes' to start anyway\n"),
        "{refused}"
    );
    for option in [
        &["--replicaof", "10.0.0.1", "6379"][..],
        &["--slaveof", "10.0.0.1 6379"],
        &["--cluster-enabled", "yes"],
        &["--loadmodule", "/usr/lib/redis/modules/redisbloom.so", "INITIAL_SIZE", "400"],
        &["--sentinel"],
        &["--sentinel monitor mymaster 127.0.0.1 6379 2"],
        &["--search.on-timeout", "fail"],
    ] {
        let refused = complaint(folder.command().args(option));
        let name = option[0].split(' ').next().unwrap();
        assert!(refused.starts_with(&format!("keyfast: option {name}: Keyfast ")), "{refused}");
        let remedy = "Remove this option, or add '--ignore-unsupported yes' to start anyway\n";
        assert!(refused.ends_with(remedy) && refused.lines().count() == 1, "{refused}");
    }
    let server = folder.serve(&["redis.conf", "--cluster-enabled", "yes", "--ignore-unsupported", "yes"]);
    for name in ["replicaof", "cluster-enabled"] {
        let warning = format!("Ignoring '{name}', as ignore-unsupported says. Keyfast has no ");
        assert!(server.output().contains(&warning), "{}", server.output());
    }
    server.client().line("PING").is_simple("PONG");
}

#[test]
fn what_has_no_effect_is_named_where_it_would_have_one_in_redis() {
    let folder = Folder::new("foreign");
    folder.write(
        "redis.conf",
        "repl-diskless-sync no\nrepl-backlog-size 1mb\nreplica-priority 10\nreplica-priority 100\n\
         replicaof no one\ncluster-enabled no\n",
    );
    let server = folder.serve(&["redis.conf"]);
    let output = server.output();
    let warned: Vec<_> = output.lines().filter(|line| line.contains("have no effect")).collect();
    assert_eq!(warned.len(), 1, "{output}");
    assert!(
        warned[0].ends_with(" # These parameters have no effect in Keyfast: repl-diskless-sync"),
        "{output}"
    );
}

#[test]
fn included_files_are_read_where_they_are_named() {
    let folder = Folder::new("includes");
    fs::create_dir(folder.file("parts")).unwrap();
    folder.write("parts/1.conf", "timeout 1\ntcp-keepalive 1\n");
    folder.write("parts/2.conf", "timeout 2\n");
    folder.write("parts/.hidden.conf", "timeout 3\n");
    folder.write(
        "redis.conf",
        "tcp-keepalive 9\ninclude parts/*.conf\ninclude nosuch/*.conf\nmaxclients 100\n",
    );
    let mut client = folder.serve(&["redis.conf"]).into_client();
    for (name, value) in [("timeout", "2"), ("tcp-keepalive", "1"), ("maxclients", "100")] {
        assert_eq!(parameter(&mut client, name), value);
    }
}

#[test]
fn users_of_a_file_are_there_from_the_start() {
    let folder = Folder::new("users");
    folder.write(
        "redis.conf",
        "requirepass gone\nuser bob on >secret ~b* +@read\nuser default on nopass ~* +ping\n",
    );
    let server = folder.serve(&["redis.conf"]);
    let mut client = server.client();
    client.line("PING").is_simple("PONG");
    client.line("GET b").is_error("NOPERM User default has no permissions to run the 'get' command");
    client.line("AUTH bob secret").is_ok();
    client.line("GET b").is_nil();
    client.line("GET a").is_error("NOPERM No permissions to access a key");

    let refused = complaint(folder.command().args(["--user", "x", "+nosuch", "--port", "0"]));
    assert_eq!(
        refused,
        "keyfast: Error loading ACL rule '+nosuch' for the user named 'x': Unknown command or category name in ACL\n"
    );
    let both = complaint(folder.command().args(["redis.conf", "--aclfile", "users.acl", "--port", "0"]));
    assert!(both.starts_with("keyfast: Configuring Redis with users defined in redis.conf"), "{both}");
    let places = format!(" {}:2 defines user bob, and aclfile names users.acl\n", folder.file("redis.conf"));
    assert!(both.ends_with(&places) && both.lines().count() == 1, "{both}");
}

#[test]
fn what_is_renamed_goes_by_its_new_name_only() {
    let folder = Folder::new("renamed");
    let commands = Server::start().client().line("COMMAND COUNT").integer();
    folder.write(
        "redis.conf",
        "rename-command FLUSHALL \"\"\nrename-command GET fetch\nrename-command SET get\n",
    );
    let mut client = folder.serve(&["redis.conf"]).into_client();
    client.line("GET k v").is_ok();
    client.line("FETCH k").is("v");
    client.line("SET k v").is_error("ERR unknown command 'SET', with args beginning with: 'k' 'v' ");
    client.line("FLUSHALL").is_error("ERR unknown command 'FLUSHALL'");
    client.cmd(["EVAL", "return redis.call('fetch', KEYS[1])", "1", "k"]).is("v");
    client.line("MULTI").is_ok();
    client.line("FETCH k").is_simple("QUEUED");
    client.line("EXEC").items();
    assert_eq!(client.line("COMMAND COUNT").integer(), commands - 1);
}

#[test]
fn a_rewritten_file_says_what_holds_and_keeps_what_people_wrote() {
    let folder = Folder::new("rewrite");
    let file = folder.write(
        "redis.conf",
        "# mine\n  TIMEOUT 5\n\n\n# the rest\nhz 50\ninclude nosuch/*.conf\nrename-command KEYS \"\"\ntimeout 6\n\
         requirepass \"old\"\nuser bob on >secret ~* +get\nclient-output-buffer-limit pubsub 1mb 1 1\n",
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let mut client = folder.serve(&["redis.conf", "--maxclients", "100", "--port", "0"]).into_client();
    client.line("AUTH old").is_ok();
    client.cmd(["CONFIG", "SET", "requirepass", "n\"w", "maxmemory", "104857600"]).is_ok();
    client.line("ACL SETUSER alice on nopass +@all").is_ok();
    client.line("CONFIG REWRITE").is_ok();
    let bob = "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let text = fs::read_to_string(&file).unwrap();
    let written: Vec<_> = text.lines().filter(|line| !line.starts_with("user default ")).collect();
    let expected = [
        "# mine",
        "timeout 6",
        "",
        "# the rest",
        "hz 50",
        "include nosuch/*.conf",
        "rename-command KEYS \"\"",
        "",
        "requirepass \"n\\\"w\"",
        "user alice on nopass sanitize-payload resetchannels +@all",
        "client-output-buffer-limit normal 0 0 0",
        "",
        "# Generated by CONFIG REWRITE",
        "bind 127.0.0.1",
        "client-output-buffer-limit pubsub 1mb 1 1",
        &format!("dir \"{}\"", folder.file("").trim_end_matches('/')),
        "maxclients 100",
        "maxmemory 100mb",
        "port 0",
        "save 3600 1",
        "save 300 100",
        "save 60 10000",
        &format!("user bob on sanitize-payload {bob} ~* resetchannels -@all +get"),
    ];
    assert_eq!(written, expected);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(folder.file("")).unwrap().count(), 1, "nothing else is left behind");

    let mut again = Server::run(folder.command().arg("redis.conf"), 0).into_client();
    again.cmd(["AUTH", "n\"w"]).is_ok();
    for (name, value) in [("maxmemory", "104857600"), ("timeout", "6"), ("maxclients", "100")] {
        assert_eq!(parameter(&mut again, name), value);
    }
    // The third is `default`, which ACL LIST shows otherwise once it was declared, as in Redis.
    assert_eq!(again.line("ACL LIST").items()[..2], client.line("ACL LIST").items()[..2]);
}

/// The users of a server, and of one that is started with the file that the first one has rewritten.
#[track_caller]
fn users_before_and_after(folder: &Folder, users: &[&[&str]]) -> [Vec<String>; 2] {
    folder.write("redis.conf", "port 0\n");
    let mut client = folder.serve(&["redis.conf"]).into_client();
    for user in users {
        client.cmd(["ACL", "SETUSER"].iter().chain(*user)).is_ok();
    }
    client.line("CONFIG REWRITE").is_ok();
    let again = Server::run(folder.command().arg("redis.conf"), 0).into_client();
    [client, again].map(|mut client| {
        let listed = client.line("ACL LIST").items().into_iter().map(|line| line.to_string());
        // A `default` that was declared shows one word more.
        listed.map(|line| line.replace(" sanitize-payload", "")).collect()
    })
}

/// Redis starts with this one.
#[test]
fn a_user_with_thousands_of_patterns_is_there_after_a_rewrite_and_a_restart() {
    let folder = Folder::new("long-lines");
    let patterns: Vec<String> = (0..5000).map(|number| format!("~pattern:{number}:*")).collect();
    let mut rules = vec!["alice", "on", "nopass", "+get"];
    rules.extend(patterns.iter().map(String::as_str));
    let [before, after] = users_before_and_after(&folder, &[&rules]);
    assert!(before[0].len() > 64 << 10);
    assert!(before == after, "the users are others now");
    // The line is found again, and replaced.
    let mut client = Server::run(folder.command().arg("redis.conf"), 0).into_client();
    client.cmd([&b"CONFIG"[..], b"SET", b"requirepass", &[0xff; 16 << 10]]).is_ok();
    client.line("CONFIG REWRITE").is_ok();
    let text = fs::read_to_string(folder.file("redis.conf")).unwrap();
    assert_eq!(text.matches("user alice ").count(), 1);
    assert!(!text.contains("# ???"), "a line was taken for a mistake");
    let mut again = Server::run(folder.command().arg("redis.conf"), 0).into_client();
    again.cmd([&b"AUTH"[..], &[0xff; 16 << 10]]).is_ok();
}

/// Redis writes such words as they are: the first one becomes all keys, and after the second it does not
/// start.
#[test]
fn quotes_in_the_names_and_rules_of_users_are_the_same_after_a_rewrite_and_a_restart() {
    let folder = Folder::new("quoted-rules");
    let [before, after] = users_before_and_after(
        &folder,
        &[
            &["alice", "on", "nopass", r#"~"\x2a""#, r#"~a"b"#, "~a'b", r"~a\x2ab", "+get"],
            &[r#"b"ob"#, "on", r#"&"*""#, r#"+get|"x""#, r#"(~"*" +set)"#, "(%R~'*' +del)", r#"(~a"b +get)"#],
            &["", "on", "nopass", "~a", "+get"],
            &["#carol", "on", ">secret", "~ä\u{1}*"],
        ],
    );
    assert_eq!(before, after);
    assert_eq!(before.len(), 5);
}

#[test]
fn a_rewrite_declares_no_user_twice() {
    let folder = Folder::new("users-twice");
    let file = folder.write("redis.conf", "port 0\ninclude users.conf\n");
    folder.write("users.conf", "user alice on nopass ~* +@all\n");
    let refusal = |name: &str| {
        format!(
            "ERR Rewriting config file: an included file or an option declares the user '{name}', which can \
             be declared only once. Declare it in the configuration file itself, or use aclfile"
        )
    };
    let mut client = folder.serve(&["redis.conf"]).into_client();
    client.line("CONFIG REWRITE").is_error(&refusal("alice"));
    client.line("ACL DELUSER alice").is(1);
    client.line("CONFIG REWRITE").is_ok();
    folder.serve(&["redis.conf"]).into_client().line("AUTH alice any").is_ok();

    fs::write(&file, "port 0\n").unwrap();
    let mut client = folder.serve(&["redis.conf", "--user", "bob", "on", "nopass"]).into_client();
    client.line("CONFIG REWRITE").is_error(&refusal("bob"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "port 0\n");
}

#[test]
fn a_rewrite_writes_no_file_that_is_too_large_to_be_read() {
    let folder = Folder::new("too-large");
    let file = folder.write("redis.conf", "port 0\n");
    let mut client = folder.serve(&["redis.conf"]).into_client();
    // Each byte takes four when it is written.
    client.cmd([&b"CONFIG"[..], b"SET", b"requirepass", &[0xff; (4 << 20) + 1]]).is_ok();
    client.line("CONFIG REWRITE").is_error("ERR Rewriting config file: file too large");
    assert_eq!(fs::read_to_string(&file).unwrap(), "port 0\n");
}

#[test]
fn a_file_that_cannot_be_rewritten_stays_as_it_was() {
    let mut without = Server::start().into_client();
    without.line("CONFIG REWRITE").is_error("ERR The server is running without a config file");
    let folder = Folder::new("unwritable");
    let file = folder.write("redis.conf", "timeout 5\n");
    let server = folder.serve(&["redis.conf"]);
    let mut client = server.client();
    // A file that was taken away is made anew, but not the folder around it.
    fs::remove_file(&file).unwrap();
    client.line("CONFIG REWRITE").is_ok();
    assert!(fs::read_to_string(&file).unwrap().starts_with("# Generated by CONFIG REWRITE\n"));
    fs::remove_dir_all(folder.file("")).unwrap();
    client.line("CONFIG REWRITE").is_error("ERR Rewriting config file: No such file or directory");
    server.wait_for_output("CONFIG REWRITE failed: No such file or directory");
}

#[test]
fn other_names_for_the_program_change_nothing() {
    let folder = Folder::new("names");
    let version = |path: &str, option: &str| {
        let output = Command::new(path).arg(option).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        String::from_utf8(output.stdout).unwrap()
    };
    let expected = version(&program(), "--version");
    for name in ["redis-server", "valkey-server"] {
        let path = folder.file(name);
        std::os::unix::fs::symlink(program(), &path).unwrap();
        for option in ["--version", "-v"] {
            assert_eq!(version(&path, option), expected);
        }
        let mut command = Command::new(&path);
        command.args(["--save", "", "--bind", "127.0.0.1", "--port", "0"]);
        Server::run(&mut command, 0).into_client().line("SETNX k v").is(1);
    }
}

#[test]
fn lines_may_come_from_standard_input_alone() {
    let folder = Folder::new("input");
    let mut command = folder.command();
    let mut child = command.arg("-").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"port 0\nnosuch\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("at line 2\n>>> 'nosuch'\nBad directive"));
}
