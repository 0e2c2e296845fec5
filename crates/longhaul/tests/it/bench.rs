//! `longhaul bench` runs to its end and reports what it promises. Its figures decide nothing here.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_short_bench_reports_its_figures_as_json() {
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
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
