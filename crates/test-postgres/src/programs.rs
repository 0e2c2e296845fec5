//! Finds the programs of PostgreSQL and the user that runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::{User, geteuid};

/// Where packages of Debian and its relatives put the programs, a folder per major version.
const PACKAGES: &str = "/usr/lib/postgresql";

/// What to do on a machine without PostgreSQL.
const ADVICE: &str = "the tests need PostgreSQL 15 or later (initdb, postgres, psql): install it, for example with `apt-get \
                      install postgresql`, or run `cargo xtask test`, which does so";

/// The oldest server that the store works with.
const MAJOR_MIN: u32 = 15;

/// The user without rights and without files that every Linux has. PostgreSQL refuses to run as root.
const OVERFLOW_ID: u32 = 65_534;

/// Returns whether a PostgreSQL that is new enough is installed.
pub fn is_installed() -> bool {
    Programs::find().is_ok()
}

/// The programs of one version of PostgreSQL, and the user that runs them.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
    /// The user and the group; `None` if this process is unprivileged already.
    pub(crate) user: Option<(u32, u32)>,
}

impl Programs {
    /// Finds the newest version.
    pub(crate) fn find() -> Result<Self> {
        let newest = folders()
            .into_iter()
            .filter_map(|folder| Some((major(&folder)?, folder)))
            // The first of equal ones: `max_by_key` would return the last.
            .rev()
            .max_by_key(|(major, _)| *major);
        match newest {
            Some((found, folder)) if found >= MAJOR_MIN => Ok(Self {
                folder,
                user: unprivileged()?,
            }),
            Some((found, _)) => bail!("PostgreSQL {found} is too old; {ADVICE}"),
            None => bail!(ADVICE),
        }
    }

    /// Returns a program that runs as this process.
    pub(crate) fn own(&self, name: &str) -> Command {
        Command::new(self.folder.join(name))
    }

    /// Returns a program that runs as the unprivileged user.
    pub(crate) fn unprivileged(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        self.drop_rights(&mut command);
        command.arg(self.folder.join(name));
        command
    }

    /// Returns a program that runs as the unprivileged user and is killed when the thread that starts it ends.
    pub(crate) fn dependent(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        self.drop_rights(&mut command);
        command.arg(self.folder.join(name));
        command
    }

    fn drop_rights(&self, command: &mut Command) {
        if let Some((user, group)) = self.user {
            command
                .arg(format!("--reuid={user}"))
                .arg(format!("--regid={group}"))
                .arg("--clear-groups");
        }
    }

    /// Gives a file or folder to the unprivileged user.
    pub(crate) fn give(&self, path: &Path) -> Result<()> {
        let Some((user, group)) = self.user else {
            return Ok(());
        };
        std::os::unix::fs::chown(path, Some(user), Some(group))
            .with_context(|| format!("{} cannot be given to user {user}", path.display()))
    }
}

/// Returns the folders that have `initdb` and `postgres`: those of the search path, then those of packages.
fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let packages = std::fs::read_dir(PACKAGES).into_iter().flatten();
    folders.extend(packages.flatten().map(|entry| entry.path().join("bin")));
    folders.retain(|folder| {
        ["initdb", "postgres", "psql"]
            .iter()
            .all(|name| folder.join(name).is_file())
    });
    folders
}

fn major(folder: &Path) -> Option<u32> {
    let output = Command::new(folder.join("postgres"))
        .arg("--version")
        .output()
        .ok()?;
    parse_major(&String::from_utf8_lossy(&output.stdout))
}

/// `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` → 15; also `17beta1`.
fn parse_major(version: &str) -> Option<u32> {
    let number = version.split(' ').nth(2)?;
    let end = number
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(number.len());
    number[..end].parse().ok()
}

fn unprivileged() -> Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = User::from_name("postgres").context("the users of this machine cannot be read")?;
    Ok(Some(user.map_or((OVERFLOW_ID, OVERFLOW_ID), |user| {
        (user.uid.as_raw(), user.gid.as_raw())
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_all_releases() {
        for (version, major) in [
            (
                "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n",
                Some(15),
            ),
            ("postgres (PostgreSQL) 17beta1\n", Some(17)),
            ("postgres (PostgreSQL) 18\n", Some(18)),
            ("", None),
        ] {
            assert_eq!(parse_major(version.trim_end()), major, "{version}");
        }
    }
}
