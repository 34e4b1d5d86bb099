//! What is made of the table of parameters: the help, completions for shells, the page of the manual, and the
//! page `src/guide/configuration.md`. What zsh, fish and groff make of them: `tests/clients/shells/run`.
//!
//! `KEYFAST_WRITE_PAGES=1 cargo test --test server documents::` writes the page anew.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

use keyfast::internals::config::table::{FAMILIES, Family, inert};
use keyfast::internals::config::{Changes, Kind, Origin, Owner, Parameter, parameters};

use support::server::program;
use support::tools::installed;

fn run(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).env_remove("COLUMNS").output().expect("the program runs")
}

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("a text")
}

/// The parameters that are options, with an effect or without.
fn options() -> impl Iterator<Item = &'static Parameter> {
    parameters().filter(|parameter| parameter.changes != Changes::Never && !parameter.is_hidden)
}

#[test]
fn shells_complete_every_parameter() {
    for shell in ["bash", "zsh", "fish"] {
        let text = printed(&["--completions", shell]);
        for parameter in options().filter(|parameter| !parameter.is_inert()) {
            // fish writes the dashes itself.
            let option = if shell == "fish" { "-l " } else { "--" };
            assert!(text.contains(&format!("{option}{}", parameter.name)), "{shell}: {}", parameter.name);
        }
        assert!(text.contains("allkeys-lfu"), "{shell} does not know the words of maxmemory-policy");
    }
}

marked!(needs_tools: bash_completes_names_and_values);
fn bash_completes_names_and_values() {
    if installed("bash").is_none() {
        return;
    }
    let text = printed(&["--completions", "bash"]);
    let completed = |words: &str| {
        let script = format!(
            "{text}\nCOMP_WORDS=(keyfast {words})\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             _keyfast keyfast \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"\n\
             echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["--norc", "-c", &script]).output().expect("bash runs");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed("--maxmemory-s"), "--maxmemory-samples");
    assert_eq!(completed("--protected-mode y"), "yes");
    assert_eq!(completed("--maxmemory-policy volatile-l"), "volatile-lru volatile-lfu volatile-lrm");
}

#[test]
fn the_manual_has_every_parameter_and_heading() {
    let text = printed(&["--man"]);
    for family in FAMILIES {
        let title = family.title.to_uppercase();
        let title = if title.contains(' ') { format!("\"{title}\"") } else { title };
        assert!(text.contains(&format!("\n.SH {title}\n")), "no {title} in {text}");
    }
    for parameter in options().filter(|parameter| !parameter.is_inert()) {
        let option = format!("\\-\\-{}", parameter.name.replace('-', "\\-"));
        assert!(text.contains(&option), "no {option} in {text}");
    }
    assert!(text.contains("keyfast cli \\-\\-help"), "no client in {text}");
    let title = concat!(".TH keyfast 1 \"\" \"keyfast ", env!("CARGO_PKG_VERSION"), "\" \"User Commands\"\n");
    assert!(text.contains(title), "{text}");
}

#[test]
fn the_help_has_every_parameter_under_its_heading() {
    let text = printed(&["--help"]);
    let mut rest = &*text;
    for family in FAMILIES {
        let (_, below) = rest.split_once(&format!("\n{}:\n", family.title)).expect("the heading");
        let section = below.split("\n\n").next().expect("options");
        for parameter in family.parameters {
            assert!(section.contains(&format!("      --{} <", parameter.name)), "{}", parameter.name);
        }
        assert_eq!(section.matches("      --").count(), family.parameters.len(), "{}", family.title);
        rest = below;
    }
}

#[test]
fn the_help_lists_apart_what_has_no_effect() {
    let text = printed(&["--help"]);
    let (listed, apart) = text.split_once("These options have no effect.").expect("a list of such options");
    let apart: Vec<&str> = apart.split([' ', '\n', ',', '.']).collect();
    for parameter in options() {
        let option = format!("--{} ", parameter.name);
        assert_eq!(listed.contains(&option), !parameter.is_inert(), "{option}");
        assert_eq!(apart.contains(&parameter.name), parameter.is_inert(), "{}", parameter.name);
    }
}

#[test]
fn other_shells_are_refused_in_one_line() {
    for arguments in [&["--completions"][..], &["--completions", "tcsh"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1));
        let complaint = "keyfast: '--completions' is for bash, zsh or fish\n";
        assert_eq!(String::from_utf8_lossy(&output.stderr), complaint);
    }
}

/// What the page says before the tables.
const HEAD: &str = "\
# Configuration

<!-- Made of the table of parameters in src/config/table by tests/server/documents.rs. -->

Keyfast has the parameters of Redis 8.6, with the same names, and some of its own. There are four places for
them. If several places set the same parameter, the last one in this order counts:

1. **The environment.** The variable is `KEYFAST_` and the name in capitals, with `_` for `-`:
   `KEYFAST_MAXMEMORY_POLICY=allkeys-lru`. For the password there are also `REDIS_PASSWORD`, and
   `REDIS_PASSWORD_FILE` for the path of a file that holds it. Other variables with this prefix are logged.
   One that was probably meant as a secret, such as `KEYFAST_PASSWORD`, stops the start if the secret is not
   set.
2. **The configuration file**, with the files that it includes: the first argument, as for redis-server. A
   file of Redis works as it is. Lines `include`, `user` and `rename-command` do what they do there.
3. **Standard input**, if the first or the last argument is `-`.
4. **The command line**: `--maxmemory 1gb` or `--maxmemory=1gb`.

An unknown name or a wrong value stops the start, and the message says where it is. The server also refuses
to start if you ask for what it does not have (`replicaof`, `cluster-enabled yes`, `loadmodule`, `sentinel`),
unless `ignore-unsupported` is `yes`.

While the server runs, `CONFIG SET` changes the parameters that the tables mark with \"at run time\", and
`CONFIG REWRITE` writes the current values into the configuration file. `keyfast -h` shows the parameters that
most people need, `keyfast --help` shows all.

Numbers of bytes may have a unit: `1k` is 1,000 bytes and `1kb` is 1,024; likewise `m`, `mb`, `g` and `gb`.
";

const PROCESS_HEAD: &str = "
## In a process with several servers

A program that starts several servers, or instances without sockets, has these parameters once. Every other
parameter has a value in each instance.

";

const INERT_HEAD: &str = "
## Parameters without an effect

Keyfast accepts these parameters, so that configuration files and tools for Redis work. It checks their values
as Redis does, `CONFIG GET` returns them, and `CONFIG REWRITE` writes them. When the server starts, one
warning names those that differ from their default.
";

#[test]
fn the_page_on_configuration_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/configuration.md");
    let page = page();
    if env::var_os("KEYFAST_WRITE_PAGES").is_some_and(|value| value == "1") {
        fs::write(&path, &page).expect("the page can be written");
    }
    let found = fs::read_to_string(&path).expect("the page");
    let first = page.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert_eq!(first, None, "expected and found; KEYFAST_WRITE_PAGES=1 writes the page anew");
    assert!(page == found, "the pages differ in length");
}

fn page() -> String {
    let mut text = HEAD.to_owned();
    for Family { title, parameters } in FAMILIES {
        let _ = write!(text, "\n## {title}\n\n");
        text += "| Parameter | Default | Unit | Values | Changes | Meaning |\n";
        text += "| --- | --- | --- | --- | --- | --- |\n";
        for parameter in *parameters {
            let cells = [
                &*named(parameter),
                &default(parameter),
                parameter.unit(),
                &values(&parameter.kind),
                changes(parameter),
                &meaning(parameter),
            ];
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
    text += PROCESS_HEAD;
    let of_process = FAMILIES.iter().flat_map(|family| family.parameters);
    for parameter in of_process.filter(|parameter| parameter.owner == Owner::Process) {
        let _ = writeln!(text, "- `{}`", parameter.name);
    }
    text += INERT_HEAD;
    for Family { title, parameters } in inert::FAMILIES {
        let _ = write!(text, "\n### Because {title}\n\n");
        text += "| Parameter | Default | Values | Changes |\n| --- | --- | --- | --- |\n";
        for parameter in *parameters {
            let cells =
                [&*named(parameter), &default(parameter), &values(&parameter.kind), changes(parameter)];
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
    text
}

/// The name, the alias, and which server has it if that is not Redis 7.0.
fn named(parameter: &Parameter) -> String {
    let names: Vec<_> = parameter.names().map(|name| format!("`{name}`")).collect();
    let origin = match parameter.origin {
        Origin::Redis => String::new(),
        Origin::RedisSince(version) => format!(" (Redis {version})"),
        Origin::Valkey => " (Valkey)".to_owned(),
        Origin::Keyfast => " (Keyfast only)".to_owned(),
    };
    names.join(" or ") + &origin
}

fn default(parameter: &Parameter) -> String {
    if parameter.default.is_empty() { "empty".to_owned() } else { format!("`{}`", parameter.default) }
}

fn changes(parameter: &Parameter) -> &'static str {
    match parameter.changes {
        Changes::Anytime => "at run time",
        Changes::Protected => "at run time, if `enable-protected-configs` allows it",
        Changes::AtStart => "at start",
        Changes::Never => "never",
    }
}

fn meaning(parameter: &Parameter) -> String {
    let difference = match parameter.difference {
        "" => String::new(),
        difference => format!("Other than Redis: {difference}"),
    };
    let sentences = [parameter.help, parameter.detail, &difference];
    let sentences = sentences.into_iter().filter(|sentence| !sentence.is_empty());
    sentences.map(|sentence| format!("{sentence}.")).collect::<Vec<_>>().join(" ")
}

/// The range of a number, the words to choose from, or the form.
fn values(kind: &Kind) -> String {
    match *kind {
        Kind::Integer { min, max: i64::MAX } => format!("{min} or more"),
        Kind::Integer { min, max } => format!("{min} to {max}"),
        Kind::Bytes { min, max } if max >= i64::MAX as u64 => format!("{} or more", bytes(min)),
        Kind::Bytes { min, max } => format!("{} to {}", bytes(min), bytes(max)),
        Kind::Octal { max } => format!("0 to {max:o}"),
        Kind::BytesOrPercent => "0 or more bytes, or 0% to 100%".to_owned(),
        Kind::Backlog => "1 or more; less than 16kb becomes 16kb".to_owned(),
        Kind::Frequency => "0 or more".to_owned(),
        Kind::Flag => "`yes` or `no`".to_owned(),
        Kind::Only { words, accepted, .. } => format!("`{}`", words[accepted]),
        Kind::Text => "text".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Hostname => "host name".to_owned(),
        Kind::Locale => "`C`, `POSIX` or `C.UTF-8`".to_owned(),
        Kind::Patterns { max } => format!("up to {max} patterns"),
        Kind::Version => "three numbers with dots between them".to_owned(),
        Kind::Title => "text with variables in braces".to_owned(),
        Kind::Directory => "directory that exists".to_owned(),
        Kind::FileName { .. } => "name without `/`".to_owned(),
        Kind::Addresses => "up to 16 addresses or host names".to_owned(),
        Kind::IpAddresses => "IP addresses".to_owned(),
        Kind::SavePoints => "pairs of numbers, from 1 second and 0 changes".to_owned(),
        Kind::Events => "letters of `Ag$lshzxeKEtmdnoc`".to_owned(),
        Kind::Limits => {
            "class (`normal`, `replica` or `pubsub`), bytes, bytes, seconds; several times".to_owned()
        }
        Kind::Choice(words) | Kind::ChoiceWithSynonym { words, .. } => quoted(words),
        Kind::Words(words) | Kind::WordsOrAll(words) => format!("some of {}", quoted(words)),
        Kind::Percentiles => "numbers from 0 to 100".to_owned(),
        Kind::Scores => "three numbers from -2000 to 2000".to_owned(),
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// A number of bytes in the largest unit of which it is a whole number.
fn bytes(bytes: u64) -> String {
    let units = [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")];
    match units.iter().find(|(size, _)| bytes != 0 && bytes.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{}{unit}", bytes / size),
        None => bytes.to_string(),
    }
}
