//! A fan-out: one worker finds the parts of the work, as many tasks as there are parts run at once, and one worker puts the results
//! together.

use std::collections::BTreeMap;

use longhaul_conductor_sdk::definition::{
    WorkflowDefBuilder, fork_each, output_of, simple, workflow_input,
};
use longhaul_conductor_sdk::model::StartWorkflowRequest;
use longhaul_conductor_sdk::worker::AnyWorker;
use longhaul_conductor_sdk::{Client, worker_task};
use serde::{Deserialize, Serialize};

use super::execute;
use crate::ExampleResult;

/// What one task gets.
#[derive(Debug, Serialize, Deserialize)]
pub struct Page {
    /// The text of the page.
    pub text: String,
}

/// What one task found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counted {
    /// The number of words.
    pub words: usize,
}

/// Splits a text into pages.
#[worker_task("split_text")]
pub fn split(text: String) -> Vec<Page> {
    let pages = text.lines().map(|line| Page {
        text: line.to_owned(),
    });
    pages.collect()
}

/// Counts the words of a page.
#[worker_task("count_words", thread_count = 10)]
pub fn count(text: String) -> Counted {
    Counted {
        words: text.split_whitespace().count(),
    }
}

/// Adds the words of all pages. The pages are the outputs of their tasks, by reference.
#[worker_task("add_words")]
pub fn add(pages: BTreeMap<String, Counted>) -> Counted {
    Counted {
        words: pages.values().map(|page| page.words).sum(),
    }
}

/// Returns the workers of the example.
pub fn workers() -> Vec<AnyWorker> {
    vec![split::worker(), count::worker(), add::worker()]
}

/// Counts the words of a text with three pages.
///
/// # Errors
/// If the server cannot be reached or refuses a request, or if a workflow ends unexpectedly.
pub async fn run_example(client: &Client) -> ExampleResult {
    let pages = fork_each("pages", "count_words", output_of("split", "result"));
    let all = pages.join_output("");
    let definition = WorkflowDefBuilder::new("word_count")
        .then(simple("split_text", "split").input("text", workflow_input("text")))
        .then(pages)
        .then(simple("add_words", "add").input("pages", all))
        .output("words", output_of("add", "words"))
        .build()?;
    let metadata = client.metadata();
    metadata.register_or_replace_workflow(&definition).await?;
    let text = "the first page\nthe second page of all\nthe last";
    let request = StartWorkflowRequest::new("word_count").input("text", text);
    let run = execute(client, &request).await?;
    say!("conductor fan-out: {} words", run.output["words"]);
    Ok(())
}
