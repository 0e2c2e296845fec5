//! Task definitions.

use std::num::NonZeroU16;
use std::time::Duration;

use longhaul_engine::conductor::validate::{Rules, check_task_def};

use super::*;

#[test]
fn every_member_is_written() {
    let definition = TaskDefBuilder::new("work")
        .description("text")
        .owner_email("a@b.c")
        .retries(5)
        .retry_logic(RetryLogic::LinearBackoff)
        .retry_delay(Duration::from_secs(2))
        .retry_delay_max(Duration::from_secs(30))
        .retry_jitter(Duration::from_millis(250))
        .backoff_factor(NonZeroU16::new(2).unwrap())
        .timeout(Duration::from_secs(60), TimeoutPolicy::Retry)
        .response_timeout(Duration::from_secs(20))
        .poll_timeout(Duration::from_secs(10))
        .total_timeout(Duration::from_secs(600))
        .concurrent_limit(4)
        .rate_limit(100, Duration::from_secs(60))
        .input_keys(["a"])
        .output_keys(["b"])
        .input_template("a", 1)
        .build()
        .unwrap();
    assert_eq!(check_task_def(&definition, &Rules::default()), []);
    let written = serde_json::to_value(definition).unwrap();
    for (name, value) in [
        ("name", json!("work")),
        ("description", json!("text")),
        ("ownerEmail", json!("a@b.c")),
        ("retryCount", json!(5)),
        ("retryLogic", json!("LINEAR_BACKOFF")),
        ("retryDelaySeconds", json!(2)),
        ("maxRetryDelaySeconds", json!(30)),
        ("backoffJitterMs", json!(250)),
        ("backoffScaleFactor", json!(2)),
        ("timeoutSeconds", json!(60)),
        ("timeoutPolicy", json!("RETRY")),
        ("responseTimeoutSeconds", json!(20)),
        ("pollTimeoutSeconds", json!(10)),
        ("totalTimeoutSeconds", json!(600)),
        ("concurrentExecLimit", json!(4)),
        ("rateLimitPerFrequency", json!(100)),
        ("rateLimitFrequencyInSeconds", json!(60)),
        ("inputKeys", json!(["a"])),
        ("outputKeys", json!(["b"])),
        ("inputTemplate", json!({"a": 1})),
    ] {
        assert_eq!(written[name], value, "{name}");
    }
}

#[test]
fn a_response_timeout_that_is_not_set_fits_the_timeout() {
    for (timeout, expected) in [(0, 3600), (60, 60), (7200, 3600)] {
        let definition = TaskDefBuilder::new("work")
            .timeout(Duration::from_secs(timeout), TimeoutPolicy::AlertOnly)
            .build()
            .unwrap();
        assert_eq!(definition.response_timeout_seconds, expected);
        assert_eq!(check_task_def(&definition, &Rules::default()), []);
    }
}

#[test]
fn wrong_task_definitions_are_refused() {
    let at = || Place::TaskDefinition("work".to_owned());
    let new = || TaskDefBuilder::new("work");
    let half = Duration::from_millis(500);
    let order = |shorter, longer| DefinitionError::TimeoutOrder {
        name: "work".to_owned(),
        shorter,
        longer,
    };
    let not_whole = |member| DefinitionError::NotWholeSeconds {
        at: at(),
        member,
        duration: half,
    };
    let minute = Duration::from_secs(60);
    for (builder, expected) in [
        (TaskDefBuilder::new(" "), DefinitionError::EmptyName),
        (new().retry_delay(half), not_whole("retryDelaySeconds")),
        (
            new().retry_delay_max(half),
            not_whole("maxRetryDelaySeconds"),
        ),
        (
            new().timeout(half, TimeoutPolicy::Retry),
            not_whole("timeoutSeconds"),
        ),
        (
            new().response_timeout(half),
            not_whole("responseTimeoutSeconds"),
        ),
        (new().poll_timeout(half), not_whole("pollTimeoutSeconds")),
        (new().total_timeout(half), not_whole("totalTimeoutSeconds")),
        (
            new().rate_limit(1, half),
            not_whole("rateLimitFrequencyInSeconds"),
        ),
        (
            new().retry_jitter(Duration::from_micros(1)),
            DefinitionError::NotWholeMilliseconds {
                at: at(),
                member: "backoffJitterMs",
                duration: Duration::from_micros(1),
            },
        ),
        (
            new().retries(u32::MAX),
            DefinitionError::TooLarge {
                at: at(),
                member: "retryCount",
            },
        ),
        (
            new()
                .timeout(minute, TimeoutPolicy::Retry)
                .response_timeout(minute * 2),
            order("responseTimeoutSeconds", "timeoutSeconds"),
        ),
        (
            new()
                .timeout(minute * 2, TimeoutPolicy::Retry)
                .total_timeout(minute),
            order("timeoutSeconds", "totalTimeoutSeconds"),
        ),
    ] {
        assert_eq!(builder.build().unwrap_err(), expected);
    }
}
