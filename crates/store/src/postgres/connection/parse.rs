//! Reads [`Options`] from an address, as libpq does. No error quotes a part of the address that could be a piece of the password:
//! a password with an unescaped `/`, `?` or `@` moves into other parts.

use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::{ChannelBinding, SslNegotiation};

use super::options::{Host, Keepalive, Options, Place};
use super::tls::{Mode, Roots};
use crate::Error;

/// The port of PostgreSQL.
const PORT: u16 = 5432;

/// Shorter ones fail on a slow network. libpq has the same minimum.
const CONNECT_TIMEOUT_MIN_SECONDS: u64 = 2;

pub(super) fn parse(url: &str) -> Result<Options, Error> {
    let rest = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))
        .ok_or_else(|| wrong("it must begin with postgres:// or postgresql://"))?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    if database.contains(['@', '/']) || (!authority.contains('@') && query.contains('@')) {
        return Err(wrong(
            "write special characters of the user and the password as %40 (@), %2F (/), %3F (?)",
        ));
    }
    let mut options = Options::new();
    let mut hosts = authority;
    let mut user = "";
    if let Some((credentials, after)) = authority.rsplit_once('@') {
        hosts = after;
        let (name, password) = match credentials.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (credentials, None),
        };
        user = name;
        options.user = Some(decoded(name)?).filter(|name| !name.is_empty());
        options.password = password.map(decoded).transpose()?;
    }
    let mut places = Places::of(hosts)?;
    options.database = Some(decoded(database)?).filter(|name| !name.is_empty());
    let mut shown_parameters = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter
            .split_once('=')
            .ok_or_else(|| wrong("a parameter has no value; it must be name=value"))?;
        let name = decoded(name)?;
        set(&mut options, &mut places, &name, &decoded(value)?)?;
        if name != "password" {
            shown_parameters.push(parameter);
        }
    }
    options.places = places.joined()?;
    check(&mut options)?;
    let at = if user.is_empty() { "" } else { "@" };
    let mark = if shown_parameters.is_empty() { "" } else { "?" };
    let parameters = shown_parameters.join("&");
    options.shown = format!("postgres://{user}{at}{hosts}/{database}{mark}{parameters}");
    Ok(options)
}

/// Checks combinations, as libpq does.
fn check(options: &mut Options) -> Result<(), Error> {
    let verifies = matches!(options.mode, Mode::VerifyFull);
    if options.roots == Some(Roots::System) && !verifies {
        return Err(wrong(
            "sslrootcert=system needs sslmode=verify-full: anyone can get a certificate of a public authority",
        ));
    }
    let encrypts = !matches!(options.mode, Mode::Disable | Mode::Prefer);
    if options.negotiation == SslNegotiation::Direct && !encrypts {
        return Err(wrong(
            "sslnegotiation=direct needs sslmode=require or stronger",
        ));
    }
    Ok(())
}

/// The hosts, addresses and ports, each as a list.
struct Places {
    hosts: Vec<String>,
    addresses: Vec<String>,
    ports: Vec<String>,
}

impl Places {
    /// Splits `host:port,[::1]:port,host`.
    fn of(text: &str) -> Result<Self, Error> {
        let mut places = Self {
            hosts: Vec::new(),
            addresses: Vec::new(),
            ports: Vec::new(),
        };
        for place in text.split(',').filter(|_| !text.is_empty()) {
            let (host, port) = match place.strip_prefix('[') {
                Some(rest) => {
                    let (host, port) = rest
                        .split_once(']')
                        .ok_or_else(|| wrong("a host begins with [ and has no ]"))?;
                    (host, port.strip_prefix(':').unwrap_or(port))
                }
                None => place.split_once(':').unwrap_or((place, "")),
            };
            places.hosts.push(decoded(host)?);
            places.ports.push(port.to_owned());
        }
        Ok(places)
    }

    fn joined(self) -> Result<Vec<Place>, Error> {
        let count = self.hosts.len().max(self.addresses.len()).max(1);
        let fits = |list: &[String]| list.len() <= 1 || list.len() == count;
        let addresses_fit = self.addresses.is_empty() || self.addresses.len() == count;
        if !fits(&self.hosts) || !addresses_fit || !fits(&self.ports) {
            return Err(wrong("the numbers of hosts, addresses and ports differ"));
        }
        let at = |list: &[String], place: usize| list.get(place).or_else(|| list.first()).cloned();
        (0..count)
            .map(|place| {
                let address = self.addresses.get(place).filter(|text| !text.is_empty());
                let host = at(&self.hosts, place).filter(|host| !host.is_empty());
                let host = host
                    .or_else(|| address.cloned())
                    .unwrap_or_else(|| "localhost".to_owned());
                let port = at(&self.ports, place).filter(|port| !port.is_empty());
                Ok(Place {
                    host: if host.starts_with('/') {
                        Host::Folder(host.into())
                    } else {
                        Host::Name(host)
                    },
                    address: address.map(|text| value("hostaddr", text)).transpose()?,
                    port: port.map_or(Ok(PORT), |port| value("port", &port))?,
                })
            })
            .collect()
    }
}

fn set(options: &mut Options, places: &mut Places, name: &str, text: &str) -> Result<(), Error> {
    let list = || text.split(',').map(str::to_owned).collect();
    match name {
        "host" => places.hosts = list(),
        "hostaddr" => places.addresses = list(),
        "port" => places.ports = list(),
        "user" => options.user = Some(text.to_owned()),
        "password" => options.password = Some(text.to_owned()),
        "dbname" => options.database = Some(text.to_owned()),
        "application_name" => text.clone_into(&mut options.application_name),
        "options" => options.arguments = Some(text.to_owned()),
        "sslmode" => {
            options.mode = match text {
                "disable" => Mode::Disable,
                "allow" | "prefer" => Mode::Prefer,
                "require" => Mode::Require,
                "verify-ca" => Mode::VerifyCa,
                "verify-full" => Mode::VerifyFull,
                _ => {
                    return Err(not_one_of(
                        name,
                        "disable, allow, prefer, require, verify-ca, verify-full",
                    ));
                }
            }
        }
        "sslrootcert" => {
            options.roots = Some(match text {
                "system" => Roots::System,
                path => Roots::File(path.into()),
            });
        }
        "sslnegotiation" => {
            options.negotiation = match text {
                "postgres" => SslNegotiation::Postgres,
                "direct" => SslNegotiation::Direct,
                _ => return Err(not_one_of(name, "postgres, direct")),
            }
        }
        "channel_binding" => {
            options.channel_binding = match text {
                "disable" => ChannelBinding::Disable,
                "prefer" => ChannelBinding::Prefer,
                "require" => ChannelBinding::Require,
                _ => return Err(not_one_of(name, "disable, prefer, require")),
            }
        }
        "target_session_attrs" => {
            options.must_write = match text {
                "any" => false,
                // The server writes, so a standby is of no use to it.
                "read-write" | "primary" => true,
                _ => return Err(not_one_of(name, "any, read-write, primary")),
            }
        }
        "load_balance_hosts" => {
            options.is_random = match text {
                "disable" => false,
                "random" => true,
                _ => return Err(not_one_of(name, "disable, random")),
            }
        }
        _ => return set_time(options, name, text),
    }
    Ok(())
}

/// Parameters that are times or numbers. As in libpq, 0 means the default.
fn set_time(options: &mut Options, name: &str, text: &str) -> Result<(), Error> {
    if !TIMES.contains(&name) {
        // Something else than a name may be a part of a password.
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let shown = if is_name { name } else { "(not shown)" };
        return Err(wrong(&format!("the parameter {shown} is not known")));
    }
    let number: u32 = value(name, text)?;
    if name == "keepalives" {
        options.keepalive = (number != 0).then(|| options.keepalive.unwrap_or_default());
        return Ok(());
    }
    if number == 0 {
        return Ok(());
    }
    let seconds = Duration::from_secs(number.into());
    let mut keepalive = options.keepalive.unwrap_or_default();
    match name {
        "connect_timeout" => {
            options.connect_timeout = seconds.max(Duration::from_secs(CONNECT_TIMEOUT_MIN_SECONDS));
        }
        "tcp_user_timeout" => {
            options.tcp_user_timeout = Duration::from_millis(number.into());
        }
        "keepalives_idle" => keepalive.idle = seconds,
        "keepalives_interval" => keepalive.interval = seconds,
        _ => keepalive.count = number,
    }
    options.keepalive = options.keepalive.map(|_: Keepalive| keepalive);
    Ok(())
}

/// `keepalives_count` is the name of libpq, `keepalives_retries` that of the client library.
const TIMES: [&str; 7] = [
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "keepalives_retries",
];

fn value<T: FromStr>(name: &str, text: &str) -> Result<T, Error> {
    text.parse()
        .map_err(|_| wrong(&format!("{name} has a wrong value")))
}

fn not_one_of(name: &str, values: &str) -> Error {
    wrong(&format!("{name} must be one of {values}"))
}

fn wrong(why: &str) -> Error {
    Error::Settings(format!("the address of PostgreSQL is wrong: {why}"))
}

/// Replaces `%40` by `@` and so on. A `+` stays: it is no space here.
fn decoded(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = char::from(rest.next()?).to_digit(16)?;
            u8::try_from(digit).ok()
        };
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(wrong(
                "a % must be followed by two hexadecimal digits; write % as %25",
            ));
        };
        bytes.push(high << 4 | low);
    }
    if bytes.contains(&0) {
        return Err(wrong("%00 is not allowed"));
    }
    String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))
}

#[cfg(test)]
mod tests;
