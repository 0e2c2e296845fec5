//! `longhaul bench` runs to its end and prints a report. The results are not judged here.

use serde_json::Value;

use crate::binary::longhaul;

#[test]
fn a_short_bench_reports_its_results_as_json() {
    let output = longhaul()
        .args([
            "bench",
            "throughput",
            "dispatch",
            "--json",
            "--seconds",
            "1",
            "--in-flight",
            "8",
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.is_object(), "{report}");
}

/// The memory of a worker process does not grow with the tasks that it has done.
#[test]
fn a_worker_process_stays_small_under_load() {
    let output = longhaul()
        .args(["bench", "conductor-sdk", "--json", "--seconds", "60"])
        .args(["--in-flight", "8"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let process = &report["conductor_sdk"]["process"];
    let bytes = |name: &str| process[name].as_u64().unwrap();
    let (early, late) = (bytes("load_bytes_early"), bytes("load_bytes_late"));
    assert_eq!(bytes("load_tasks"), 12_000);
    // Pages that were touched late in the run count, too.
    assert!(late < early + 4 * 1024 * 1024, "{process}");
    let requests = report["conductor_sdk"]["requests_per_task"].as_f64();
    assert!(requests.unwrap() < 1.2, "{requests:?}");
}
