//! What packages bring along beside the program: completions for shells and a page of the manual.
//!
//! Both are made of the options of the help, which are those of the table of parameters.

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;

/// The shells that there are completions for.
const SHELLS: &[(&str, Shell)] = &[("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)];

/// The options that print them.
pub(super) fn options() -> [Arg; 2] {
    let shells = super::one_of(Arg::new("completions"), &["bash", "zsh", "fish"]);
    [
        shells.long("completions").help("Prints completions for a shell").action(ArgAction::Set),
        Arg::new("man").long("man").help("Prints the page of the manual").action(ArgAction::SetTrue),
    ]
}

/// Completions for a shell, to be read by it.
///
/// # Errors
///
/// With one line for people, if there are none for it.
pub(super) fn completions(mut command: Command, shell: &[u8]) -> Result<String, String> {
    let found = SHELLS.iter().find(|(name, _)| name.as_bytes() == shell);
    let (_, shell) = found.ok_or("keyfast: '--completions' is for bash, zsh or fish")?;
    // The others complete the configuration file unasked; bash would offer its name in the usage as a word.
    if *shell == Shell::Zsh {
        command = command.arg(Arg::new("file").value_hint(ValueHint::FilePath));
    }
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(*shell, &mut command, name, &mut text);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The page of the manual, to be formatted by man.
pub(super) fn manual(command: Command) -> String {
    let mut text = Vec::new();
    // The date is left out, as nobody would keep it: without the quotes, the version would be taken for it.
    let page = Man::new(command).date("\"\"").manual("User Commands");
    // Nothing fails in memory.
    let _ = page.render(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
