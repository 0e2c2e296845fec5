//! Finds a Java that can run Conductor OSS: that of `JAVA_HOME`, that of the path, or one in a folder where packages install it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

/// The oldest Java that Conductor OSS runs on.
const JAVA_MAJOR_MIN: u32 = 21;

/// The folders where packages install Java, with the path of the program below each installation.
const INSTALLATIONS: [(&str, &str); 2] = [
    ("/usr/lib/jvm", "bin/java"),
    (
        "/Library/Java/JavaVirtualMachines",
        "Contents/Home/bin/java",
    ),
];

/// Returns the first program that is new enough.
pub(crate) fn find() -> Result<PathBuf> {
    let mut too_old = Vec::new();
    for program in candidates() {
        match version(&program) {
            Some(major) if major >= JAVA_MAJOR_MIN => return Ok(program),
            Some(major) => too_old.push(format!("{} is Java {major}", program.display())),
            None => {}
        }
    }
    let found = if too_old.is_empty() {
        "none was found".to_owned()
    } else {
        too_old.join(", ")
    };
    bail!(
        "Conductor OSS needs Java {JAVA_MAJOR_MIN} or later ({found}): install a Java runtime, such as the package \
         `openjdk-21-jre-headless` or Eclipse Temurin 21, or set JAVA_HOME to one"
    )
}

fn candidates() -> Vec<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    let mut all: Vec<PathBuf> = home.into_iter().collect();
    all.push(PathBuf::from("java"));
    for (folder, program) in INSTALLATIONS {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut installed: Vec<_> = entries.map(|entry| entry.path().join(program)).collect();
        installed.sort();
        all.extend(installed);
    }
    all
}

/// Returns the major version of a Java, or `None` if the program cannot be run.
fn version(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("-version").output().ok()?;
    parse_major(&String::from_utf8_lossy(&output.stderr))
}

/// `openjdk version "21.0.4" 2024-07-16` → 21, `java version "1.8.0_392"` → 8.
fn parse_major(text: &str) -> Option<u32> {
    let (_, version) = text.split_once(" version \"")?;
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit());
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_old_and_new_forms() {
        for (text, major) in [
            ("openjdk version \"21.0.4\" 2024-07-16\nOpenJDK", Some(21)),
            (
                "Picked up options\nopenjdk version \"25\" 2025-09-16",
                Some(25),
            ),
            ("openjdk version \"22-ea\" 2024-03-19", Some(22)),
            ("java version \"1.8.0_392\"", Some(8)),
            ("sh: not found", None),
        ] {
            assert_eq!(parse_major(text), major, "{text}");
        }
    }
}
