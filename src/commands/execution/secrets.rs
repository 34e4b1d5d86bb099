//! Hides passwords in requests that other users may see (SLOWLOG, MONITOR).
//!
//! Which arguments are secret is a fact of the command ([`Secrets`]), found by the parser that its handler
//! uses: a word that looks like an option may be a name or a password.

use crate::name_table::NameTable;
use crate::resp::Request;

use crate::commands::facts::lookup::{find, resolve};
use crate::commands::facts::{Command, Secrets};

/// The text in place of a secret, as in Redis.
const HIDDEN: &[u8] = b"(redacted)";

/// The arguments of a request, each secret among them replaced. Arguments may be a request themselves, for a
/// command that has one of these names.
pub(crate) fn visible_arguments<'a>(
    names: &NameTable,
    command: &Command,
    request: Request<'a>,
) -> Vec<&'a [u8]> {
    let mut arguments: Vec<&[u8]> = request.from(0).collect();
    let (mut secrets, mut request, mut first) = (command.secrets, request, 0);
    loop {
        match secrets {
            Secrets::None => return arguments,
            Secrets::At(places) => {
                places(request).into_iter().for_each(|at| arguments[first + at] = HIDDEN);
                return arguments;
            }
            Secrets::Of(begin) if begin < request.len() => {
                request = request.without_first(begin);
                first += begin;
                let named = find(names, request.name()).and_then(|found| resolve(found, request).ok());
                secrets = named.map_or(Secrets::None, |registered| registered.command.secrets);
            }
            Secrets::Of(_) => return arguments,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::facts::lookup::{find_full, own_names};
    use crate::resp::OwnedRequest;

    fn shown(command: &str, line: &str) -> String {
        let words = OwnedRequest::of_line(line.as_bytes()).unwrap();
        let command = find_full(own_names(), command.as_bytes()).unwrap().command;
        let shown = visible_arguments(own_names(), command, words.request().unwrap());
        String::from_utf8(shown.join(&b' ')).unwrap().replace("(redacted)", "*")
    }

    #[test]
    fn only_what_the_parser_takes_for_a_password_is_hidden() {
        for (command, line, expected) in [
            ("auth", "AUTH pw", "AUTH *"),
            ("auth", "AUTH u pw", "AUTH * *"),
            ("auth", "AUTH u pw more", "AUTH * * *"),
            ("hello", "HELLO", "HELLO"),
            ("hello", "HELLO 3 SETNAME auth AUTH u pw", "HELLO 3 SETNAME auth AUTH * *"),
            ("hello", "HELLO 3 AUTH auth auth SETNAME auth", "HELLO 3 AUTH * * SETNAME auth"),
            ("hello", "HELLO 3 auth u pw AUTH v pw", "HELLO 3 auth * * AUTH * *"),
            ("config|set", "CONFIG SET maxmemory 1 requirepass pw", "CONFIG SET maxmemory 1 requirepass *"),
            ("config|set", "CONFIG SET MasterAuth pw hz 10", "CONFIG SET MasterAuth * hz 10"),
            ("config|set", "CONFIG SET masteruser u", "CONFIG SET masteruser *"),
            ("config|set", "CONFIG SET tls-key-file-pass pw", "CONFIG SET tls-key-file-pass *"),
            ("config|set", "CONFIG SET tls-client-key-file-pass pw", "CONFIG SET tls-client-key-file-pass *"),
            ("acl|setuser", "ACL SETUSER u >pw ~*", "ACL SETUSER * * *"),
            ("acl|getuser", "ACL GETUSER u", "ACL GETUSER *"),
            ("acl|dryrun", "ACL DRYRUN u AUTH u pw", "ACL DRYRUN u AUTH * *"),
            ("command|getkeys", "COMMAND GETKEYS HELLO 3 AUTH u pw", "COMMAND GETKEYS HELLO 3 AUTH * *"),
            ("acl|dryrun", "ACL DRYRUN u ACL DRYRUN v AUTH pw", "ACL DRYRUN u ACL DRYRUN v AUTH *"),
            ("acl|dryrun", "ACL DRYRUN u nosuch pw", "ACL DRYRUN u nosuch pw"),
            ("set", "SET auth pw", "SET auth pw"),
        ] {
            assert_eq!(shown(command, line), expected, "{line}");
        }
    }

    #[test]
    fn what_the_parser_refuses_may_be_a_password() {
        for (command, line, expected) in [
            ("hello", "HELLO 3 SETNAME AUTH u pw", "HELLO 3 SETNAME AUTH * *"),
            ("hello", "HELLO 3 AUTH u", "HELLO 3 * *"),
            ("hello", "HELLO 3 AUTH u p w", "HELLO 3 AUTH * * *"),
            ("hello", "HELLO x AUTH u pw", "HELLO x AUTH * *"),
            ("hello", "HELLO AUTH u pw", "HELLO AUTH * *"),
            ("config|set", "CONFIG SET requirpass pw", "CONFIG SET requirpass *"),
            ("config|set", "CONFIG SET hz requirepass pw", "CONFIG SET * * *"),
        ] {
            assert_eq!(shown(command, line), expected, "{line}");
        }
    }
}
