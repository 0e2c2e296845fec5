//! `longhaul replay`: replays recorded histories.

use std::path::PathBuf;

use crate::output::{self, say};
use anyhow::{Context, Result, bail};
use longhaul_examples::{approval, gpu, hello, local, order, schedule};
use longhaul_sdk::testing::{ReplayFailure, Replayer, check_soundness};

/// Options of `longhaul replay`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files with histories, as the export endpoint returns them.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let replayer = Replayer::new()
        .workflow::<hello::hello>()
        .workflow::<order::place_order>()
        .workflow::<local::bill>()
        .workflow::<gpu::film>()
        .workflow::<approval::expense>()
        .workflow::<schedule::report>();
    let mut broken = 0;
    for file in &args.files {
        let name = file.display();
        let history =
            std::fs::read_to_string(file).with_context(|| format!("could not read {name}"))?;
        let outcome = match replayer.replay(&history) {
            Err(ReplayFailure::UnknownWorkflow(workflow_type)) => check_soundness(&history).map(|events| {
                format!(
                    "{events} events, sound; `{workflow_type}` is your own code: replay it there with longhaul_sdk::testing::Replayer"
                )
            }),
            outcome => outcome.map(|replayed| {
                format!(
                    "{} events of `{}` replay, {}",
                    replayed.events, replayed.workflow_type, replayed.ending
                )
            }),
        };
        match outcome {
            Ok(words) => say!("{name}: {words}"),
            Err(error) => {
                broken += 1;
                say!("{name}: BROKEN: {error}");
            }
        }
    }
    if broken > 0 {
        bail!("{broken} of {} histories do not replay", args.files.len());
    }
    output::written()
}
