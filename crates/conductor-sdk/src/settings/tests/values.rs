//! Values that are read, and values that are refused.

use std::time::Duration;

use super::super::*;
use super::{Variables, from, resolved, variables};

/// The error of one variable, as text.
fn error_of(variable: &str, text: &str) -> String {
    let error = resolved(
        "order",
        &CodeSettings::new(),
        &variables([(variable, text)]),
    )
    .unwrap_err();
    error.to_string()
}

#[test]
fn flags_accept_three_words_each_in_any_case_with_blanks_around_them() {
    let paused = |text| {
        let pairs = [("CONDUCTOR_WORKER_ORDER_PAUSED", text)];
        from("order", pairs).settings().paused
    };
    for text in ["true", "True", "TRUE", "1", "yes", "YES", " yes\n"] {
        assert!(paused(text), "{text:?}");
    }
    for text in ["false", "False", "FALSE", "0", "no", "No", "\t0 "] {
        assert!(!paused(text), "{text:?}");
    }
}

#[test]
fn a_wrong_flag_is_an_error_that_names_the_variable() {
    for flag in [
        "lease_extend_enabled",
        "overwrite_task_def",
        "paused",
        "register_schema",
        "register_task_def",
        "strict_schema",
    ] {
        let variable = format!("conductor.worker.order.{flag}");
        for text in ["maybe", "on", "off", "2", "t", "y e s", "tru\u{435}"] {
            assert_eq!(
                error_of(&variable, text),
                format!(
                    "the environment variable `{variable}` has the value {text:?}; \
                     `{flag}` must be one of true, 1, yes, false, 0, no"
                )
            );
        }
    }
}

#[test]
fn a_wrong_number_is_an_error_that_names_the_variable() {
    let too_large = u128::MAX.to_string();
    let cases = [
        (
            "CONDUCTOR_WORKER_ORDER_THREAD_COUNT",
            &["abc", "0", "-1", "1.5", "0x10", "10001", &too_large][..],
            "`thread_count` must be a whole number from 1 to 10000",
        ),
        (
            "CONDUCTOR_WORKER_ALL_POLL_INTERVAL",
            &["abc", "-1", "100ms", "3600001", &too_large],
            "`poll_interval_millis` must be a whole number of milliseconds from 0 to 3600000",
        ),
        (
            "conductor_worker_poll_timeout",
            &["abc", "-1", "5001", &too_large],
            "`poll_timeout` must be a whole number of milliseconds from 0 to 5000",
        ),
    ];
    for (variable, texts, rule) in cases {
        for text in texts {
            assert_eq!(
                error_of(variable, text),
                format!("the environment variable `{variable}` has the value {text:?}; {rule}")
            );
        }
    }
}

#[test]
fn the_limits_of_numbers_are_allowed() {
    let least = from(
        "order",
        [
            ("CONDUCTOR_WORKER_THREAD_COUNT", "1"),
            ("CONDUCTOR_WORKER_POLL_INTERVAL_MILLIS", "0"),
            ("CONDUCTOR_WORKER_POLL_TIMEOUT", "0"),
        ],
    );
    assert_eq!(least.settings().thread_count, 1);
    assert_eq!(least.settings().poll_interval, Duration::ZERO);
    assert_eq!(least.settings().poll_timeout, Duration::ZERO);
    let most = from(
        "order",
        [
            ("CONDUCTOR_WORKER_THREAD_COUNT", " 10000 "),
            ("CONDUCTOR_WORKER_POLL_INTERVAL_MILLIS", "3600000"),
            ("CONDUCTOR_WORKER_POLL_TIMEOUT", "5000"),
        ],
    );
    assert_eq!(most.settings().thread_count, THREAD_COUNT_MAX);
    assert_eq!(most.settings().poll_interval, POLL_INTERVAL_MAX);
    assert_eq!(most.settings().poll_timeout, POLL_TIMEOUT_MAX);
}

#[test]
fn a_wrong_value_in_code_is_an_error_that_names_the_property() {
    let code = CodeSettings::new;
    let nanosecond = Duration::from_nanos(1);
    let cases = [
        (
            code().thread_count(0),
            "`thread_count` to 0",
            "a whole number from 1 to 10000",
        ),
        (
            code().thread_count(THREAD_COUNT_MAX + 1),
            "`thread_count` to 10001",
            "a whole number from 1 to 10000",
        ),
        (
            code().poll_interval(POLL_INTERVAL_MAX + nanosecond),
            "`poll_interval_millis` to 3600001",
            "a whole number of milliseconds from 0 to 3600000",
        ),
        (
            code().poll_timeout(POLL_TIMEOUT_MAX + nanosecond),
            "`poll_timeout` to 5001",
            "a whole number of milliseconds from 0 to 5000",
        ),
    ];
    for (code, set, allowed) in cases {
        let error = resolved("order", &code, &Variables::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the code sets {set} for the task `order`; it must be {allowed}")
        );
    }
    let longest = code().poll_interval(Duration::MAX);
    assert!(resolved("order", &longest, &Variables::new()).is_err());
}

#[test]
fn a_wrong_value_in_code_is_not_checked_if_a_variable_overrides_it() {
    let code = CodeSettings::new().thread_count(0);
    let environment = variables([("CONDUCTOR_WORKER_THREAD_COUNT", "3")]);
    let resolved = resolved("order", &code, &environment).unwrap();
    assert_eq!(resolved.settings().thread_count, 3);
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_unicode_is_an_error_that_names_the_variable() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    let environment = |name: &str| {
        (name == "CONDUCTOR_WORKER_ORDER_DOMAIN").then(|| OsString::from_vec(b"eu\xff".to_vec()))
    };
    let error = resolve::resolve_with("order", &CodeSettings::new(), &environment).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the value of the environment variable `CONDUCTOR_WORKER_ORDER_DOMAIN` is not valid Unicode: \"eu\u{fffd}\"; \
         `domain` must be a text"
    );
}
