//! The numbers of several processes together.

use std::time::Duration;

use super::super::exchange::{Exchange, replace};
use super::super::metric::Metric;
use super::super::snapshot::{OTHER, SECOND_VALUES_MAX, Snapshot};
use super::super::{MetricsError, MetricsSettings, Place, Reporting, Surface, text};
use super::exposition::Exposition;

/// The numbers of a process.
fn numbers(surface: Surface, count: u64) -> Snapshot {
    let mut numbers = Snapshot::new(surface);
    numbers.count(Metric::TaskPollTotal, ("t", ""), count);
    numbers.shift(Metric::ActiveWorkers, ("t", ""), 2);
    for number in 0..count {
        numbers.observe(Metric::TaskPollTime, ("t", ""), 0.25, number);
    }
    numbers
}

fn read(snapshot: &Snapshot) -> Exposition {
    Exposition::parse(&text::render(snapshot)).unwrap()
}

const T: (&str, &str) = ("taskType", "t");

#[test]
fn labels_are_escaped() {
    let name = "a \"quoted\\\" name\nof two lines, with { and }";
    let mut numbers = Snapshot::new(Surface::Guide);
    numbers.count(Metric::TaskPollTotal, (name, ""), 1);
    let samples = read(&numbers);
    let value = samples.value("task_poll_total", [("taskType", name)]);
    assert_eq!(value, Some(1.0));
}

#[test]
fn labels_are_limited_in_number_and_length() {
    let mut numbers = Snapshot::new(Surface::Guide);
    for number in 0..200 {
        let exception = format!("E{number}");
        numbers.count(Metric::TaskPollErrorTotal, ("t", &exception), 1);
    }
    // A known one is still counted apart.
    numbers.count(Metric::TaskPollErrorTotal, ("t", "E0"), 1);
    let samples = read(&numbers);
    let all = samples.all("task_poll_error_total");
    assert_eq!(all.len(), SECOND_VALUES_MAX + 1);
    let total: f64 = all.iter().map(|(_, value)| value).sum();
    assert_eq!(total, 201.0);
    let value = |exception| {
        let labels = [T, ("exception", exception)];
        samples.value("task_poll_error_total", labels)
    };
    assert_eq!((value("E0"), value(OTHER)), (Some(2.0), Some(150.0)));

    let mut numbers = Snapshot::new(Surface::Guide);
    for number in 0..3000 {
        numbers.count(Metric::TaskPollTotal, (&format!("t{number}"), ""), 1);
    }
    numbers.count(Metric::TaskPollTotal, (&"ü".repeat(5000), ""), 1);
    let samples = read(&numbers);
    assert_eq!(samples.all("task_poll_total").len(), 1001);
    let other = samples.value("task_poll_total", [("taskType", OTHER)]);
    assert_eq!(other, Some(2001.0));
}

#[test]
fn a_snapshot_survives_its_file() {
    for surface in [Surface::Guide, Surface::Canonical] {
        let numbers = numbers(surface, 7);
        let read = Snapshot::from_json(&numbers.to_json().unwrap()).unwrap();
        assert_eq!(read, numbers);
    }
    assert!(Snapshot::from_json(b"{\"surface\":\"guide\"").is_err());
}

#[test]
fn numbers_of_dead_processes_stay_and_their_gauges_do_not() {
    for surface in [Surface::Guide, Surface::Canonical] {
        let directory = tempfile::tempdir().unwrap();
        // Left by an earlier program.
        let leftover = directory.path().join("0-0.json");
        replace(&leftover, &numbers(surface, 1000).to_json().unwrap()).unwrap();
        let exchange = Exchange::new(directory.path(), surface).unwrap();
        let polls = |samples: &Exposition| samples.value("task_poll_total", [T]);
        let times = |samples: &Exposition| {
            let all = samples.all("task_poll_time_seconds_count");
            all.iter().map(|(_, count)| count).sum::<f64>()
        };
        let active = |samples: &Exposition| samples.value("active_workers", [T]);

        let first = exchange.begin(0);
        let other = exchange.begin(1);
        assert_ne!(first, other);
        // A process that has not written yet counts nothing.
        assert_eq!(polls(&read(&exchange.gather(|_| true))), None);
        replace(&first, &numbers(surface, 5).to_json().unwrap()).unwrap();
        replace(&other, &numbers(surface, 3).to_json().unwrap()).unwrap();
        let samples = read(&exchange.gather(|_| true));
        assert_eq!((polls(&samples), active(&samples)), (Some(8.0), Some(4.0)));
        assert_eq!(times(&samples), 8.0);

        // The first worker died.
        let samples = read(&exchange.gather(|worker| worker == 1));
        assert_eq!((polls(&samples), active(&samples)), (Some(8.0), Some(2.0)));

        // It has a new process, and the file of the former one is gone.
        let second = exchange.begin(0);
        assert!(!first.exists());
        assert_eq!(polls(&read(&exchange.gather(|_| true))), Some(8.0));
        replace(&second, &numbers(surface, 2).to_json().unwrap()).unwrap();
        let samples = read(&exchange.gather(|_| true));
        assert_eq!((polls(&samples), active(&samples)), (Some(10.0), Some(4.0)));

        // A file that is not valid does not make counters fall.
        std::fs::write(&second, b"{").unwrap();
        assert_eq!(polls(&read(&exchange.gather(|_| true))), Some(10.0));

        let inside = second.parent().unwrap().to_owned();
        drop(exchange);
        assert!(!inside.exists());
    }
}

#[test]
fn wrong_settings_are_errors_that_name_what_to_do() {
    let error = |settings: MetricsSettings| {
        let place = Place::Alone(std::sync::Arc::default());
        Reporting::new(&settings, place).unwrap_err()
    };
    let none = error(MetricsSettings::new());
    assert_eq!(
        none.to_string(),
        "the metrics have no destination: set `http_port`, or `directory` for a file"
    );
    let fast = MetricsSettings::new().http_port(0);
    let fast = error(fast.update_interval(Duration::ZERO));
    assert!(matches!(fast, MetricsError::Interval(_)), "{fast}");
    for name in ["", "..", "a/b", "/etc/passwd"] {
        let wrong = MetricsSettings::new().directory("/tmp").file_name(name);
        let wrong = error(wrong);
        assert!(matches!(wrong, MetricsError::FileName(_)), "{wrong}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let inside = error(MetricsSettings::new().directory(file.path().join("x")));
    let text = inside.to_string();
    assert!(text.contains("set `directory` to a directory"), "{text}");
}
