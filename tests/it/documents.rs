//! What packages bring along: completions for shells and a page of the manual. What zsh, fish and groff make
//! of them: `tests/clients/shells/run`.

use std::process::{Command, Output};

use keyfast::config::{Changes, Parameter, parameters};

use crate::server::program;
use crate::tools::installed;

fn run(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).output().expect("the program runs")
}

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("a text")
}

/// Those that are options, with an effect or without.
fn options() -> impl Iterator<Item = &'static Parameter> {
    parameters().filter(|parameter| parameter.changes != Changes::Never && !parameter.is_hidden)
}

#[test]
fn shells_complete_every_parameter() {
    for shell in ["bash", "zsh", "fish"] {
        let text = printed(&["--completions", shell]);
        for parameter in options().filter(|parameter| !parameter.is_kept()) {
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
    assert_eq!(completed("--maxmemory-policy volatile-l"), "volatile-lru volatile-lfu");
}

#[test]
fn the_manual_has_every_parameter() {
    let text = printed(&["--man"]);
    for parameter in options().filter(|parameter| !parameter.is_kept()) {
        let option = format!("\\-\\-{}", parameter.name.replace('-', "\\-"));
        assert!(text.contains(&option), "no {option} in {text}");
    }
    assert!(text.contains("keyfast cli \\-\\-help"), "no client in {text}");
    let title = concat!(".TH keyfast 1 \"\" \"keyfast ", env!("CARGO_PKG_VERSION"), "\" \"User Commands\"\n");
    assert!(text.contains(title), "{text}");
}

#[test]
fn the_help_lists_apart_what_has_no_effect() {
    let text = printed(&["--help"]);
    let (listed, apart) = text.split_once("nothing acts on them").expect("a list of such options");
    let apart: Vec<&str> = apart.split([' ', '\n', ',', '.']).collect();
    for parameter in options() {
        let option = format!("--{} ", parameter.name);
        assert_eq!(listed.contains(&option), !parameter.is_kept(), "{option}");
        assert_eq!(apart.contains(&parameter.name), parameter.is_kept(), "{}", parameter.name);
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
