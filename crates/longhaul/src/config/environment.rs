//! Values and secrets of definitions, from the environment of the process.

use longhaul_host::Environment;

use super::File;

/// Where values come from unless a setting says otherwise.
const VALUE_PREFIX: &str = "CONDUCTOR_ENV_";

/// Where secrets come from unless a setting says otherwise.
const SECRET_PREFIX: &str = "CONDUCTOR_SECRET_";

#[derive(clap::Args, Default)]
pub(super) struct EnvironmentArgs {
    /// Variables that begin with this are values of Conductor definitions, ${workflow.env.NAME} [default: CONDUCTOR_ENV_]
    #[arg(long, env = "LONGHAUL_CONDUCTOR_ENV_PREFIX", value_name = "PREFIX")]
    conductor_env_prefix: Option<String>,

    /// Variables that begin with this are secrets of Conductor definitions, ${workflow.secrets.NAME} [default: CONDUCTOR_SECRET_]
    #[arg(long, env = "LONGHAUL_CONDUCTOR_SECRET_PREFIX", value_name = "PREFIX")]
    conductor_secret_prefix: Option<String>,

    /// Another variable that Conductor definitions may read, ${NAME} or ${workflow.env.NAME}; may be repeated
    #[arg(
        long,
        env = "LONGHAUL_CONDUCTOR_ENV_ALLOW",
        value_name = "NAME",
        value_delimiter = ','
    )]
    conductor_env_allow: Vec<String>,
}

impl EnvironmentArgs {
    /// Reads the variables.
    pub(super) fn settle(
        &self,
        file: &File,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Environment {
        let prefix = |flag: &Option<String>, file: &Option<String>, default: &str| {
            let given = flag.clone().or_else(|| file.clone());
            given.unwrap_or_else(|| default.to_owned())
        };
        let values = prefix(
            &self.conductor_env_prefix,
            &file.conductor_env_prefix,
            VALUE_PREFIX,
        );
        let secrets = prefix(
            &self.conductor_secret_prefix,
            &file.conductor_secret_prefix,
            SECRET_PREFIX,
        );
        let allowed = match &self.conductor_env_allow[..] {
            [] => file.conductor_env_allow.clone().unwrap_or_default(),
            given => given.to_vec(),
        };
        let mut environment = Environment::default();
        for (name, value) in variables {
            // A secret is never a value too, whatever the prefixes are. An empty prefix switches its kind off.
            if let Some(secret) = after(&name, &secrets) {
                environment = environment.with_secret(secret, value);
            } else if let Some(short) = after(&name, &values) {
                environment = environment.with_value(short, value);
            } else if allowed.contains(&name) {
                environment = environment.with_named_value(name, value);
            }
        }
        environment
    }
}

/// Returns the rest of a name after a prefix.
fn after<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = name.strip_prefix(prefix).filter(|_| !prefix.is_empty())?;
    (!rest.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(args: &EnvironmentArgs, file: &str) -> String {
        let file: File = toml::from_str(file).unwrap();
        let variables = [
            ("CONDUCTOR_ENV_REGION", "r"),
            ("CONDUCTOR_SECRET_KEY", "k"),
            ("CONDUCTOR_SECRET_", "empty"),
            ("APP_X", "x"),
            ("HOME", "h"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        format!("{:?}", args.settle(&file, variables.into_iter()))
    }

    #[test]
    fn prefixes_and_names_say_what_definitions_may_read() {
        let defaults = EnvironmentArgs::default();
        assert_eq!(
            settled(&defaults, ""),
            r#"Environment { values: ["REGION"], secrets: ["KEY"] }"#
        );
        let file = "conductor_env_prefix = \"APP_\"\nconductor_secret_prefix = \"\"\nconductor_env_allow = [\"HOME\"]";
        assert_eq!(
            settled(&defaults, file),
            r#"Environment { values: ["HOME", "X"], secrets: [] }"#
        );
        let same = EnvironmentArgs {
            conductor_env_prefix: Some("CONDUCTOR_".to_owned()),
            ..EnvironmentArgs::default()
        };
        assert_eq!(
            settled(&same, ""),
            r#"Environment { values: ["ENV_REGION", "SECRET_"], secrets: ["KEY"] }"#,
            "a secret is no value"
        );
    }
}
