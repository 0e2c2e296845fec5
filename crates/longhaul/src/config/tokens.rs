//! The tokens of the server, and checks that they can work.

use anyhow::{Result, bail};

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    pub(crate) shared: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) operator: Option<String>,
    pub(crate) admin: Option<String>,
}

impl Tokens {
    pub(super) fn is_empty(&self) -> bool {
        self.given().next().is_none()
    }

    /// Refuses tokens that no client can send, and one token for two roles. The message never contains a token.
    pub(super) fn check(&self) -> Result<()> {
        for (name, token) in self.given() {
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                bail!(
                    "--{name} has a space, a line end or a letter that is not ASCII, which no client can send in a header; choose another"
                );
            }
            let twin = self
                .given()
                .find(|(other, same)| *other != name && *same == token);
            if let Some((other, _)) = twin {
                bail!(
                    "--{name} and --{other} are the same token, so a caller with it would have one of the two roles only; choose \
                     different ones, or --token alone for all roles"
                );
            }
        }
        Ok(())
    }

    fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("token", &self.shared),
            ("worker-token", &self.worker),
            ("operator-token", &self.operator),
            ("admin-token", &self.admin),
        ]
        .into_iter()
        .filter_map(|(name, token)| Some((name, token.as_deref()?)))
    }
}
