//! What packages install beside the program: completions for shells, and the page of the manual. Both are
//! made of the options of the [help](super::help), which come from the table of parameters.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;

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
    let mut text = Vec::new();
    clap_complete::generate(*shell, &mut command, name, &mut text);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The page of the manual, in the language of man.
pub(super) fn manual(command: Command) -> String {
    let mut text = Vec::new();
    // There is no date to keep up to date. Without the quotes, man would take the version for it.
    let page = Man::new(command).date("\"\"").manual("User Commands");
    // Nothing fails in memory.
    let _ = page.render(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
