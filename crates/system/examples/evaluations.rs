//! Prints how many scripts per second the pool evaluates: `cargo run --release -p longhaul-system --example evaluations`.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream;
use longhaul_system::{Limits, Scripts};
use serde_json::value::RawValue;

const ROUND: Duration = Duration::from_secs(2);

#[tokio::main]
#[expect(
    clippy::print_stdout,
    reason = "the figures are the purpose of this program"
)]
async fn main() {
    let input = RawValue::from_string(r#"{"loop":{"iteration":2},"a":[1,2,3]}"#.to_owned());
    let input = input.expect("the text is JSON");
    for processes in [1, 2] {
        let scripts = Scripts::new(Limits {
            processes,
            ..Limits::default()
        });
        let began = Instant::now();
        scripts
            .evaluate("1", &input)
            .await
            .expect("a script process starts");
        println!(
            "{processes} processes: first evaluation after {:?}",
            began.elapsed()
        );
        for in_flight in [1, 64] {
            for script in [
                "1",
                "if ($.loop['iteration'] < 3) { true; } else { false; }",
                "(function(){ return $.a.map(x => x * 2).reduce((a, b) => a + b); })()",
            ] {
                let began = Instant::now();
                let mut count = 0_u32;
                let mut running = stream::repeat(())
                    .map(|()| scripts.evaluate(script, &input))
                    .buffer_unordered(in_flight);
                while let Some(result) = running.next().await {
                    result.expect("the script has a result");
                    count += 1;
                    if began.elapsed() > ROUND {
                        break;
                    }
                }
                let each = began.elapsed() / count;
                let per_second = f64::from(count) / began.elapsed().as_secs_f64();
                println!(
                    "  {in_flight:>2} in flight: {per_second:>7.0}/s, {each:?} each: {script}"
                );
            }
        }
    }
}
