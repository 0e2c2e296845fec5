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
