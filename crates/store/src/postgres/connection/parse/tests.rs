use std::time::Duration;

use super::*;

fn parsed(url: &str) -> Options {
    Options::parse(url).unwrap()
}

fn refused(url: &str) -> String {
    match Options::parse(url) {
        Err(Error::Settings(why)) => why,
        other => panic!("{url}: {other:?}"),
    }
}

fn places(url: &str) -> Vec<String> {
    let places = parsed(url).places;
    places.iter().map(ToString::to_string).collect()
}

#[test]
fn an_address_has_defaults() {
    let options = parsed("postgres://me@db.example/shop");
    assert_eq!(options.user.as_deref(), Some("me"));
    assert_eq!(options.password, None);
    assert_eq!(options.database.as_deref(), Some("shop"));
    assert_eq!(options.application_name, "longhaul");
    assert_eq!(options.mode, Mode::Prefer);
    assert_eq!(options.connections_max(), 16);
    assert_eq!(options.statement_timeout(), Duration::from_secs(30));
    assert_eq!(options.lock_timeout(), Duration::from_secs(5));
    assert_eq!(options.connect_timeout(), Duration::from_secs(10));
    assert_eq!(places("postgres://me@db.example/shop"), ["db.example:5432"]);
    assert_eq!(places("postgresql:///shop"), ["localhost:5432"]);
}

#[test]
fn hosts_are_written_in_many_ways() {
    for (url, expected) in [
        ("postgres://a:1,b,c:3/d", &["a:1", "b:5432", "c:3"][..]),
        ("postgres://[::1]:7/d", &["[::1]:7"]),
        ("postgres://%2Frun%2Fpg:7/d", &["/run/pg/.s.PGSQL.7"]),
        ("postgres:///d?host=/run/pg&port=7", &["/run/pg/.s.PGSQL.7"]),
        ("postgres:///d?host=a,b&port=7", &["a:7", "b:7"]),
        ("postgres:///d?hostaddr=10.0.0.1", &["10.0.0.1:5432"]),
    ] {
        assert_eq!(places(url), expected, "{url}");
    }
    refused("postgres:///d?host=a,b,c&port=1,2");
    refused("postgres://a:port/d");
    refused("postgres://[::1/d");
    refused("mysql://a/d");
}

#[test]
fn special_characters_are_percent_encoded() {
    let options = parsed("postgres://a%40b:p%2Fw%3F%25@h/d%20b?application_name=x%26y+z");
    assert_eq!(options.user.as_deref(), Some("a@b"));
    assert_eq!(options.password.as_deref(), Some("p/w?%"));
    assert_eq!(options.database.as_deref(), Some("d b"));
    assert_eq!(options.application_name, "x&y+z");
    refused("postgres://a:p%zz@h/d");
    refused("postgres://a:p%0@h/d");
    refused("postgres://a:p%00@h/d");
}

#[test]
fn parameters_mean_what_they_mean_to_libpq() {
    let options = parsed(
        "postgres://h/d?connect_timeout=1&tcp_user_timeout=1500&keepalives_idle=5&keepalives_count=7&keepalives_interval=0\
         &target_session_attrs=read-write&options=-c%20geqo%3Doff&sslmode=verify-ca&sslrootcert=/r.pem&user=u&password=p&dbname=e",
    );
    assert_eq!(options.connect_timeout, Duration::from_secs(2));
    assert_eq!(options.tcp_user_timeout, Duration::from_millis(1500));
    let keepalive = options.keepalive.unwrap();
    assert_eq!((keepalive.idle.as_secs(), keepalive.count), (5, 7));
    assert_eq!(keepalive.interval, Keepalive::default().interval);
    assert!(options.must_write);
    assert_eq!(options.arguments.as_deref(), Some("-c geqo=off"));
    assert_eq!(options.mode, Mode::VerifyCa);
    assert_eq!(options.roots, Some(Roots::File("/r.pem".into())));
    assert_eq!(options.user.as_deref(), Some("u"));
    assert_eq!(options.password.as_deref(), Some("p"));
    assert_eq!(options.database.as_deref(), Some("e"));
    assert_eq!(parsed("postgres://h/d?sslmode=allow").mode, Mode::Prefer);
    assert_eq!(parsed("postgres://h/d?keepalives=0").keepalive, None);
}

#[test]
fn an_unknown_parameter_is_named() {
    let why = refused("postgres://h/d?ssl_mode=require");
    assert!(why.contains("ssl_mode is not known"), "{why}");
    for url in [
        "postgres://h/d?sslmode=strict",
        "postgres://h/d?target_session_attrs=standby",
        "postgres://h/d?connect_timeout=soon",
        "postgres://h/d?sslrootcert=system&sslmode=require",
        "postgres://h/d?sslnegotiation=direct",
        "postgres://h/d?sslmode",
    ] {
        refused(url);
    }
}

#[test]
fn the_password_is_never_shown() {
    for url in [
        "postgres://me:hunter2@h:7/d?sslmode=require",
        "postgres://me@h:7/d?password=hunter2&sslmode=require",
    ] {
        let options = parsed(url);
        assert_eq!(
            options.to_string(),
            "postgres://me@h:7/d?sslmode=require",
            "{url}"
        );
        assert!(!format!("{options:?}").contains("hunter2"));
    }
    // Unescaped, it moves into other parts of the address.
    for url in [
        "postgres://me:hunter2/x@h/d",
        "postgres://me:/hunter2@h/d",
        "postgres://me:?hunter2=1@h/d",
        "postgres://me:a@b/hunter2@h/d",
        "postgres://me:%hunter2@h/d",
        "postgres://me:x@h:hunter2/d",
        "postgres://me:x@h/d?HUNTER2=hunter2&Hunter2=1",
        "postgres://me:x@h/d?hunter2",
    ] {
        let why = refused(url).to_lowercase();
        assert!(!why.contains("hunter2"), "{why}");
    }
}
