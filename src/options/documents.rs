//! What packages install beside the program: completions for shells, and the page of the manual. Both are
//! made of the options of the [help](super::help), which come from the table of parameters, and of those of
//! the [client](crate::cli).

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli;

/// The shells for which clap makes completions that we test.
const SHELLS: &[(&str, Shell)] = &[("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)];

/// The options that print completions and the page of the manual.
pub(super) fn options() -> [Arg; 2] {
    let names = SHELLS.iter().map(|(name, _)| *name);
    let shells = Arg::new("completions")
        .long("completions")
        .help("Print completions for a shell")
        .action(ArgAction::Set)
        .value_name(names.clone().collect::<Vec<_>>().join("|"))
        .value_parser(PossibleValuesParser::new(names))
        .hide_possible_values(true);
    let manual = Arg::new("man").long("man").help("Print the page of the manual");
    [shells, manual.action(ArgAction::SetTrue)]
}

/// Completions in the language of a shell.
///
/// # Errors
///
/// With one line for people, if the shell is not one of those.
pub(super) fn completions(mut command: Command, shell: &[u8]) -> Result<String, String> {
    let found = SHELLS.iter().find(|(name, _)| name.as_bytes() == shell);
    let (_, shell) = found.ok_or("keyfast: '--completions' is for bash, zsh or fish")?;
    // Other shells complete files by themselves; bash would offer the argument's name as a word.
    if *shell == Shell::Zsh {
        command = command.arg(Arg::new("file").value_hint(ValueHint::FilePath));
    }
    let name = command.get_name().to_owned();
    command =
        command.subcommand(client()).subcommands(CHECKS.iter().map(check)).disable_help_subcommand(true);
    let mut text = Vec::new();
    clap_complete::generate(*shell, &mut command, name, &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(if *shell == Shell::Fish { mend_fish(&text) } else { text })
}

/// Mends what clap_complete writes for a program that may run without a subcommand: it completes no value of
/// an option, since it finds that the option has none, and beside subcommands no files.
fn mend_fish(text: &str) -> String {
    const PARSE: &str = "    argparse -s (__fish_keyfast_global_optspecs) -- $cmd 2>/dev/null\n";
    const WITHOUT_LAST: &str = "    or begin\n        set -e cmd[-1]\n    ";
    let mended = format!("{PARSE}{WITHOUT_LAST}{PARSE}        or return\n    end\n");
    text.replace(&format!("{PARSE}    or return\n"), &mended)
        .replace("_needs_command\" -f -a ", "_needs_command\" -a ")
}

/// The page of the manual, in the language of man.
pub(super) fn manual(command: Command) -> String {
    let mut text = Vec::new();
    // There is no date to keep up to date. Without the quotes, man would take the version for it.
    let page = Man::new(command).date("\"\"").manual("User Commands");
    // Nothing fails in memory.
    let _ = page.render(&mut text);
    for command in std::iter::once(client()).chain(CHECKS.iter().map(check)) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let name = command.get_name().to_uppercase();
        text.extend(format!(".SH \"KEYFAST {name}\"\n{about}.\n").replace('-', "\\-").into_bytes());
        let mut options = Vec::new();
        let _ = Man::new(command).render_options_section(&mut options);
        // What stands before is at the top of the page, and the heading is the one above.
        const HEADING: &str = ".SH OPTIONS\n";
        let options = String::from_utf8_lossy(&options);
        text.extend(options.split_once(HEADING).map_or(&*options, |(_, options)| options).bytes());
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The programs that check files: the name, what it does, its options with their values.
const CHECKS: [(&str, &str, Options); 2] = [
    (
        "check-aof",
        "Check an append-only file, or all files of its manifest, as redis-check-aof does",
        &[
            ("fix", None, "Cut off what is behind the damage, after a question"),
            ("truncate-to-timestamp", Some("seconds"), "Cut off what is later than this moment"),
        ],
    ),
    ("check-rdb", "Check a snapshot, as redis-check-rdb does", &[]),
];

fn check((name, about, options): &(&'static str, &'static str, Options)) -> Command {
    let option = |(name, value, help): &(&'static str, Option<&'static str>, &'static str)| {
        let arg = Arg::new(*name).long(*name).help(*help);
        match value {
            Some(value) => arg.action(ArgAction::Set).value_name(*value),
            None => arg.action(ArgAction::SetTrue),
        }
    };
    let file = Arg::new("file").value_hint(ValueHint::FilePath);
    Command::new(*name).about(*about).disable_help_flag(true).args(options.iter().map(option)).arg(file)
}

type Options = &'static [(&'static str, Option<&'static str>, &'static str)];

/// The client with its options.
fn client() -> Command {
    let options = cli::options().map(|(names, value, help)| {
        let mut arg = Arg::new(names[0]).help(help).action(ArgAction::SetTrue);
        if let Some(value) = value {
            arg = arg.action(ArgAction::Set).value_name(value.trim_matches(['<', '>']));
            let is_path = matches!(value, "<file>" | "<filename>" | "<socket>" | "<dir>");
            arg = arg.value_hint(if is_path { ValueHint::AnyPath } else { ValueHint::Other });
        }
        for name in names {
            let mut letters = name.trim_start_matches('-').chars();
            arg = match (name.starts_with("--"), letters.next(), arg.get_short(), arg.get_long()) {
                (false, Some(letter), None, _) => arg.short(letter),
                (false, Some(letter), Some(_), _) => arg.visible_short_alias(letter),
                (true, _, _, None) => arg.long(&name[2..]),
                _ => arg.visible_alias(&name[2..]),
            };
        }
        arg
    });
    Command::new("cli")
        .about("A client with the options of redis-cli")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(options)
}
