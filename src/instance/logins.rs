//! Tokens of managed services in the place of passwords (`auth-iam`), and the ends of the connections that
//! they begin.
//!
//! The log says why a token was refused, since the client hears no more than of a wrong password. It never
//! has the token.

use super::Instance;
use crate::acl::tokens::Tokens;
use crate::clients::{Address, Leaving};
use crate::config::{CLOUDS, TOKENS_FROM};

impl Instance {
    /// Whether a password has the form of a token that may stand for it.
    pub fn may_be_token(&self, password: &[u8]) -> bool {
        Tokens::have(self.config.auth_iam.get(), password)
    }

    /// Judges a password that may be a token. `None` if it has the form of none; otherwise when the
    /// connection ends that it begins, if the token is right.
    pub fn judge_token(&self, user: &[u8], password: &[u8], from: &Address) -> Option<Option<u64>> {
        let clouds = self.config.auth_iam.get();
        if clouds == 0 {
            return None;
        }
        self.judge_token_of(clouds, user, password, from)
    }

    #[cold]
    fn judge_token_of(
        &self,
        clouds: i64,
        user: &[u8],
        password: &[u8],
        from: &Address,
    ) -> Option<Option<u64>> {
        let may_come_from = TOKENS_FROM[self.config.auth_iam_clients.get()] == "all"
            || from.is_local()
            || from.is_at(&self.config.local_addresses.get());
        let judged = match may_come_from {
            true => {
                let cache = self.config.auth_iam_cache.get();
                self.tokens.judge(clouds, &cache, (user, password), self.clock.now_ms())?
            }
            false if self.may_be_token(password) => Err("auth-iam-clients is local, and the client is not"),
            false => return None,
        };
        if let Err(why) = judged {
            let user = &user[..user.len().min(USER_BYTES_MAX)];
            tracing::info!("A token for user '{}' from {from} is refused: {why}", user.escape_ascii());
        }
        Some(judged.ok())
    }

    /// Disconnects the clients whose tokens have ended.
    pub fn end_logins(&self) {
        if self.config.auth_iam.get() == 0 {
            return;
        }
        let now_ms = self.clock.now_ms();
        for client in self.clients.all() {
            if client.login_ends_at_ms().is_some_and(|at_ms| at_ms <= now_ms) {
                tracing::info!("Closing client {}: its token has ended", client.address);
                client.ask_to_leave(Leaving::Now);
            }
        }
    }

    /// Warns that tokens are accepted that anyone can make.
    pub fn warn_of_tokens(&self) {
        let clouds = self.config.auth_iam.get();
        let named = CLOUDS.iter().skip(1).enumerate().filter(|(place, _)| clouds >> place & 1 == 1);
        let named: Vec<&str> = named.map(|(_, cloud)| *cloud).collect();
        if !named.is_empty() {
            tracing::warn!(
                "auth-iam accepts tokens of {} in the place of passwords, and checks no signature: anyone \
                 who can connect ({} clients) can log in as any user. It is for tests",
                named.join(", "),
                TOKENS_FROM[self.config.auth_iam_clients.get()]
            );
        }
    }
}

/// Bytes of a name that the log shows.
const USER_BYTES_MAX: usize = 128;
