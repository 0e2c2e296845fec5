//! Every mistake in a workflow definition, and what is not a mistake.

use std::time::Duration;

use super::*;

fn workflow(steps: impl Into<Steps>) -> WorkflowDefBuilder {
    WorkflowDefBuilder::new("w").then(steps)
}

#[track_caller]
fn refused(builder: WorkflowDefBuilder, expected: DefinitionError) {
    assert_eq!(builder.build().unwrap_err(), expected);
}

fn at(reference: &str) -> Place {
    Place::Node(reference.to_owned())
}

fn r(reference: &str) -> String {
    reference.to_owned()
}

#[test]
fn names_and_versions() {
    refused(
        WorkflowDefBuilder::new("").then(task("a")),
        DefinitionError::EmptyName,
    );
    refused(
        WorkflowDefBuilder::new("w"),
        DefinitionError::NoTasks { workflow: r("w") },
    );
    refused(
        workflow(simple("", "a")),
        DefinitionError::EmptyTaskName { reference: r("a") },
    );
    refused(
        workflow(simple("work", "")),
        DefinitionError::EmptyReference { name: r("work") },
    );
    let below = |at| DefinitionError::VersionBelowOne { at, version: 0 };
    let here = || Place::Workflow(r("w"));
    refused(workflow(task("a")).version(0), below(here()));
    refused(
        workflow(task("a")).failure_workflow_version(0),
        below(here()),
    );
    refused(workflow(sub_workflow("a", "x").version(0)), below(at("a")));
    refused(
        workflow(start_workflow("a", "x").version(0)),
        below(at("a")),
    );
}

#[test]
fn a_reference_is_used_once_in_the_whole_tree() {
    let twice = || DefinitionError::DuplicateReference { reference: r("a") };
    for inner in [
        Steps::from(task("a")),
        switch("s", 1).case(1, task("a")).into(),
        switch("s", 1)
            .case(1, task("b"))
            .default_case(task("a"))
            .into(),
        fork("f").branch(task("a")).into(),
        fork("f").branch(task("b")).join_reference("a").into(),
        do_while("l", "false", task("a")).into(),
    ] {
        refused(workflow(task("a")).then(inner), twice());
    }
}

#[test]
fn an_expression_refers_to_a_node_that_exists() {
    let unknown = |at: Place, member: &str| DefinitionError::UnknownReference {
        at,
        member: member.to_owned(),
        reference: r("gone"),
    };
    let gone = || output_of("gone", "x");
    refused(
        workflow(task("a").input("x", gone())),
        unknown(at("a"), "inputParameters.x"),
    );
    refused(
        workflow(task("a").input("x", json!([{"y": "${a.output.${gone.output}}"}]))),
        unknown(at("a"), "inputParameters.x"),
    );
    refused(
        workflow(fork("f").branch(task("a").input("x", gone()))),
        unknown(at("a"), "inputParameters.x"),
    );
    refused(
        workflow(for_each("l", gone(), task("a"))),
        unknown(at("l"), "items"),
    );
    refused(workflow(event("e", gone())), unknown(at("e"), "sink"));
    refused(
        workflow(sub_workflow("s", "x").version_from(gone())),
        unknown(at("s"), "subWorkflowParam"),
    );
    refused(
        workflow(inline("i", "`${gone.output.x}`")),
        unknown(at("i"), "inputParameters.expression"),
    );
    refused(
        workflow(task("a")).output("o", gone()),
        unknown(Place::Workflow(r("w")), "outputParameters.o"),
    );
}

#[test]
fn some_names_are_no_references() {
    workflow(task("a").input("id", "${CPEWF_TASK_ID}"))
        .then(inline("i", "`${$.x} ${item.name}`"))
        .then(task("b").input("text", "$${gone.output}"))
        .output("own", "${REGION}")
        .output("later", output_of("b", ""))
        .known_names(["REGION"])
        .build()
        .unwrap();
}

#[test]
fn forks_and_joins() {
    let reference = || r("f");
    refused(
        workflow(fork("f")),
        DefinitionError::NoBranches {
            reference: reference(),
        },
    );
    refused(
        workflow(fork("f").branch(Steps::new())),
        DefinitionError::EmptyBranch {
            reference: reference(),
        },
    );
    refused(
        workflow(fork("f").branch(task("a")).join_on(["gone"])),
        DefinitionError::UnknownJoin {
            reference: r("f_join"),
            joined: r("gone"),
        },
    );
    let mut raw_fork = WorkflowTask {
        task_type: r("FORK_JOIN"),
        name: r("f"),
        task_reference_name: r("f"),
        fork_tasks: vec![Steps::from(task("a")).list],
        ..WorkflowTask::default()
    };
    refused(
        workflow(Node::from(raw_fork.clone())),
        DefinitionError::NoJoin {
            reference: reference(),
        },
    );
    raw_fork.fork_tasks.push(Vec::new());
    refused(
        workflow(Node::from(raw_fork)),
        DefinitionError::EmptyBranch {
            reference: reference(),
        },
    );
}

#[test]
fn switches_have_different_cases() {
    refused(
        workflow(switch("s", 1)),
        DefinitionError::NoCases { reference: r("s") },
    );
    refused(
        workflow(switch("s", 1).case(1, task("a")).case("1", task("b"))),
        DefinitionError::DuplicateCase {
            reference: r("s"),
            case: r("1"),
        },
    );
}

#[test]
fn loops_are_not_empty_and_not_in_each_other() {
    refused(
        workflow(do_while("l", "true", Steps::new())),
        DefinitionError::EmptyLoop { reference: r("l") },
    );
    let inner = || do_times("inner", 2, task("a"));
    for body in [
        Steps::from(inner()),
        switch("s", 1).case(1, inner()).into(),
        fork("f").branch(inner()).into(),
    ] {
        refused(
            workflow(do_times("outer", 2, body)),
            DefinitionError::LoopInLoop {
                reference: r("inner"),
                outer: r("outer"),
            },
        );
    }
    let child = workflow(inner()).build().unwrap();
    workflow(do_times("outer", 2, sub_workflow_inline("s", child)))
        .build()
        .unwrap();
}

#[test]
fn members_that_a_type_needs() {
    let missing = |reference: &str, member| DefinitionError::Missing {
        reference: r(reference),
        member,
    };
    refused(
        workflow(switch_script("s", " ").case(1, task("a"))),
        missing("s", "expression"),
    );
    refused(
        workflow(do_while("l", "", task("a"))),
        missing("l", "loopCondition"),
    );
    refused(workflow(event("e", "")), missing("e", "sink"));
    refused(
        workflow(sub_workflow("s", "")),
        missing("s", "subWorkflowParam.name"),
    );
    refused(
        workflow(raw("SUB_WORKFLOW", "s", "s")),
        missing("s", "subWorkflowParam"),
    );
    refused(
        workflow(raw("DYNAMIC", "d", "d")),
        missing("d", "dynamicTaskNameParam"),
    );
    refused(
        workflow(terminate("t", TerminationStatus::Failed).optional()),
        DefinitionError::OptionalTerminate { reference: r("t") },
    );
}

#[test]
fn durations_are_whole() {
    let half = Duration::from_millis(1500);
    let not_whole = |at, member| DefinitionError::NotWholeSeconds {
        at,
        member,
        duration: half,
    };
    refused(
        workflow(task("a")).timeout(half, WorkflowTimeoutPolicy::AlertOnly),
        not_whole(Place::Workflow(r("w")), "timeoutSeconds"),
    );
    refused(
        workflow(task("a").start_delay(half)),
        not_whole(at("a"), "startDelay"),
    );
    refused(
        workflow(wait_for("a", half)),
        not_whole(at("a"), "inputParameters.duration"),
    );
    refused(
        workflow(task("a").cache("k", half)),
        not_whole(at("a"), "cacheConfig.ttlInSecond"),
    );
    refused(
        workflow(http("h", "GET", "x").read_timeout(Duration::from_nanos(1))),
        DefinitionError::NotWholeMilliseconds {
            at: at("h"),
            member: "readTimeOut",
            duration: Duration::from_nanos(1),
        },
    );
    refused(
        workflow(task("a").start_delay(Duration::from_secs(u64::MAX))),
        DefinitionError::TooLarge {
            at: at("a"),
            member: "startDelay",
        },
    );
}

#[test]
fn a_value_must_be_json() {
    let wrong = std::collections::BTreeMap::from([(vec![1], 1)]);
    let error = workflow(task("a").input("x", wrong)).build().unwrap_err();
    assert!(
        matches!(&error, DefinitionError::Value { at: Place::Node(node), member, .. } if node == "a" && member == "x"),
        "{error}"
    );
}

#[test]
fn an_error_inside_a_branch_is_not_lost() {
    let wrong = || wait_for("a", Duration::from_millis(1));
    for steps in [
        fork("f").branch(task("b").then(wrong())).into(),
        switch("s", 1).case(1, wrong()).into(),
        switch("s", 1)
            .case(1, task("b"))
            .default_case(wrong())
            .into(),
        do_times("l", 1, [task("b"), wrong()]).into(),
        Steps::from(vec![task("b"), wrong()]),
    ] {
        let error = workflow(steps).build().unwrap_err();
        assert_eq!(
            error.to_string(),
            "node \"a\": inputParameters.duration is 1ms, which is not a whole number of seconds"
        );
    }
}
