use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::conductor::{TaskDef, WorkflowDef, read};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn definition(tasks: Value) -> WorkflowDef {
    read(json!({"name": "w", "tasks": tasks})).unwrap()
}

fn compile(tasks: Value) -> Snapshot {
    Snapshot::compile(definition(tasks), &Lookups::default()).unwrap()
}

fn task(reference: &str) -> Value {
    json!({"name": "t", "taskReferenceName": reference})
}

fn operator(reference: &str, task_type: &str, members: Value) -> Value {
    let mut node = members;
    node["name"] = reference.into();
    node["taskReferenceName"] = reference.into();
    node["type"] = task_type.into();
    node
}

/// a, fork([b1, switch(x: [c1, c2], y: [], default: [d, end])], [b2]), join, loop([e, switch2(z: [f]), fork2([g]), join2]), last
fn nested() -> Snapshot {
    compile(json!([
        task("a"),
        operator(
            "fork",
            "FORK_JOIN",
            json!({"forkTasks": [
                [task("b1"), operator("switch", "SWITCH", json!({
                    "decisionCases": {"x": [task("c1"), task("c2")], "y": []},
                    "defaultCase": [task("d"), operator("end", "TERMINATE", json!({})), task("never")],
                }))],
                [task("b2")],
            ]})
        ),
        operator("join", "JOIN", json!({"joinOn": ["switch", "b2"]})),
        operator(
            "loop",
            "DO_WHILE",
            json!({"loopCondition": "true", "loopOver": [
                task("e"),
                operator("switch2", "SWITCH", json!({"decisionCases": {"z": [task("f")]}})),
                operator("fork2", "FORK_JOIN", json!({"forkTasks": [[task("g")]]})),
                operator("join2", "JOIN", json!({})),
            ]})
        ),
        operator("fork3", "FORK_JOIN_DYNAMIC", json!({})),
        task("last"),
    ]))
}

fn id(tree: &Tree, reference: &str) -> NodeId {
    tree.find(reference).unwrap().id()
}

fn successor<'a>(tree: &'a Tree, reference: &str) -> Option<&'a str> {
    tree.successor(id(tree, reference))
        .map(|next| tree.node(next).reference())
}

#[test]
fn each_node_has_its_successor() {
    let snapshot = nested();
    let tree = snapshot.tree();
    assert_eq!(tree.first(), Some(id(tree, "a")));
    for (node, next) in [
        ("a", Some("fork")),
        ("fork", Some("join")),
        ("b1", Some("switch")),
        ("switch", Some("join")),
        ("c1", Some("c2")),
        ("c2", Some("join")),
        ("d", Some("end")),
        ("end", None),
        ("never", Some("join")),
        ("b2", Some("join")),
        ("join", Some("loop")),
        ("loop", Some("fork3")),
        ("e", Some("switch2")),
        ("f", Some("fork2")),
        ("g", Some("join2")),
        ("join2", Some("loop")),
        ("fork3", Some("last")),
        ("last", None),
    ] {
        assert_eq!(successor(tree, node), next, "{node}");
    }
    assert_eq!(tree.find("missing").map(Node::id), None);
}

#[test]
fn each_node_knows_its_place() {
    let snapshot = nested();
    let tree = snapshot.tree();
    let looping = id(tree, "loop");
    let body: Vec<_> = tree
        .contents(looping)
        .map(|id| tree.node(id).reference())
        .collect();
    assert_eq!(body, ["e", "switch2", "f", "fork2", "g", "join2"]);
    let direct: Vec<_> = body
        .iter()
        .copied()
        .filter(|node| tree.is_directly_in(id(tree, node), looping))
        .collect();
    assert_eq!(direct, ["e", "switch2", "fork2", "join2"]);
    assert_eq!(tree.find("g").unwrap().enclosing_loop(), Some(looping));
    assert_eq!(tree.find("loop").unwrap().enclosing_loop(), None);
    assert_eq!(tree.find("c1").unwrap().enclosing_loop(), None);
    assert!(tree.is_inside(id(tree, "c2"), id(tree, "fork")));
    assert!(!tree.is_inside(id(tree, "join"), id(tree, "fork")));
    assert_eq!(tree.join_of(id(tree, "fork")), Some(id(tree, "join")));
    assert_eq!(tree.join_of(id(tree, "fork3")), None);
    assert_eq!(tree.find("c2").unwrap().position(), 1);
    assert_eq!(tree.owner(id(tree, "c2")), Owner::Case(id(tree, "switch")));
    assert_eq!(tree.top_level().len(), 6);
    let Operator::Switch(switch) = tree.find("switch").unwrap().operator() else {
        panic!("switch is a SWITCH");
    };
    assert_eq!(tree.list(switch.cases["x"]).len(), 2);
    assert!(tree.list(switch.cases["y"]).is_empty());
    assert_eq!(tree.list(switch.default)[0], id(tree, "d"));
}

#[test]
fn forked_nodes_have_no_successor_in_the_tree() {
    let definition = definition(json!([
        task("r0"),
        task("r1"),
        operator(
            "s",
            "SWITCH",
            json!({"decisionCases": {"x": [task("c1"), task("c2")]}})
        )
    ]));
    let tree = Tree::forked(&definition.tasks).unwrap();
    assert_eq!(successor(&tree, "r0"), None);
    assert_eq!(successor(&tree, "s"), None);
    assert_eq!(successor(&tree, "c1"), Some("c2"));
    assert_eq!(successor(&tree, "c2"), None);
    assert_eq!(tree.first(), None);
    let twice = vec![
        Arc::clone(&definition.tasks[0]),
        Arc::clone(&definition.tasks[0]),
    ];
    assert_eq!(Tree::forked(&twice).unwrap_err(), "r0");
}

#[test]
fn references_in_loops_have_the_iteration_at_their_end() {
    assert_eq!(reference_in_loop("simple__x_ref", 12), "simple__x_ref__12");
    assert_eq!(bare_reference("simple__x_ref__12", 12), "simple__x_ref");
    assert_eq!(bare_reference("a__1", 0), "a__1");
    assert_eq!(bare_reference("a__1__2", 2), "a__1");
    assert_eq!(bare_reference("a__3", 2), "a__3");
    assert_eq!(bare_reference("__1", 1), "");
}

#[test]
fn every_node_gets_its_task_definition() {
    let registered: TaskDef =
        read(json!({"name": "known", "retryCount": 7, "inputTemplate": {"a": 1}})).unwrap();
    let mut lookups = Lookups::default();
    lookups
        .task_defs
        .insert("known".to_owned(), Arc::new(registered));
    let definition = definition(json!([
        {"name": "known", "taskReferenceName": "registered"},
        {"name": "known", "taskReferenceName": "own", "taskDefinition": {"retryCount": 1}},
        {"name": "new", "taskReferenceName": "simple"},
        {"name": "new", "taskReferenceName": "user", "type": "ANYTHING"},
        {"name": "new", "taskReferenceName": "wait", "type": "WAIT"},
        {"name": "dyn", "taskReferenceName": "dynamic", "type": "DYNAMIC", "dynamicTaskNameParam": "n"},
        operator("l", "DO_WHILE", json!({"loopOver": [{"name": "known", "taskReferenceName": "inner"}]})),
    ]));
    assert_eq!(needed_task_defs(&definition), ["known", "l", "new"]);
    let snapshot = Snapshot::compile(definition, &lookups).unwrap();
    let of = |reference: &str| {
        let task = snapshot.tree().find(reference).unwrap().task();
        task.task_definition.as_ref().map(|definition| {
            (
                definition.name.as_str(),
                definition.retry_count,
                definition.response_timeout_seconds,
            )
        })
    };
    assert_eq!(of("registered"), Some(("known", 7, 3600)));
    assert_eq!(of("own"), Some(("known", 1, 3600)));
    assert_eq!(of("simple"), Some(("new", 3, 3600)));
    assert_eq!(of("user"), Some(("new", 3, 3600)));
    assert_eq!(of("wait"), Some(("new", 0, 0)));
    assert_eq!(of("dynamic"), None);
    assert_eq!(of("inner"), Some(("known", 7, 3600)));
    let json: Value =
        serde_json::from_str(snapshot.tree().find("l").unwrap().json().get()).unwrap();
    assert_eq!(json["loopOver"][0]["taskDefinition"]["retryCount"], 7);
}

#[test]
fn sub_workflows_without_a_version_get_the_latest() {
    let sub = |reference: &str, params: Value| {
        operator(
            reference,
            "SUB_WORKFLOW",
            json!({"subWorkflowParam": params}),
        )
    };
    let tasks = json!([
        sub("latest", json!({"name": "child"})),
        sub("zero", json!({"name": "child", "version": 0})),
        sub("fixed", json!({"name": "other", "version": 2})),
        sub(
            "expression",
            json!({"name": "third", "version": "${workflow.input.v}"})
        ),
        sub(
            "named_by_expression",
            json!({"name": "${workflow.input.n}"})
        ),
        sub(
            "inline",
            json!({"name": "inner", "workflowDefinition": {"name": "inner"}})
        ),
    ]);
    assert_eq!(needed_sub_workflows(&definition(tasks.clone())), ["child"]);
    let missing = Snapshot::compile(definition(tasks.clone()), &Lookups::default()).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "No such workflow defined. name=child, version=null"
    );
    let lookups = Lookups {
        sub_workflows: BTreeMap::from([("child".to_owned(), 4)]),
        ..Lookups::default()
    };
    let snapshot = Snapshot::compile(definition(tasks), &lookups).unwrap();
    let version = |reference: &str| {
        let Operator::SubWorkflow(sub) = snapshot.tree().find(reference).unwrap().operator() else {
            panic!("{reference} is a SUB_WORKFLOW");
        };
        match &sub.version {
            SubWorkflowVersion::Latest => "latest".to_owned(),
            SubWorkflowVersion::Fixed(version) => version.to_string(),
            SubWorkflowVersion::Expression(_) => "expression".to_owned(),
        }
    };
    let versions = [
        "latest",
        "zero",
        "fixed",
        "expression",
        "named_by_expression",
        "inline",
    ]
    .map(version);
    assert_eq!(versions, ["4", "4", "2", "expression", "latest", "latest"]);
}

#[test]
fn lists_of_loops_come_from_three_places() {
    let parts = |members: Value| {
        let mut members = members;
        members["loopOver"] = json!([task("t")]);
        let snapshot = compile(json!([operator("l", "DO_WHILE", members)]));
        let Operator::DoWhile(looping) = snapshot.tree().find("l").unwrap().operator() else {
            panic!("l is a DO_WHILE");
        };
        (looping.condition.is_some(), looping.items.is_some())
    };
    let generated = "if ( $.l.iteration < 0 ) { true; } else { false; }";
    assert_eq!(
        parts(json!({"loopCondition": "$.l['iteration'] < 2"})),
        (true, false)
    );
    assert_eq!(
        parts(json!({"items": "${workflow.input.x}", "loopCondition": ""})),
        (false, true)
    );
    assert_eq!(
        parts(json!({"items": "${workflow.input.x}", "loopCondition": "true"})),
        (true, true)
    );
    assert_eq!(
        parts(json!({"inputParameters": {"_items": [1]}})),
        (false, true)
    );
    assert_eq!(
        parts(json!({"inputParameters": {"items": [1]}, "loopCondition": generated})),
        (false, true)
    );
    assert_eq!(
        parts(
            json!({"inputParameters": {"items": [1]}, "loopCondition": "$.l.iteration < $.items.length"})
        ),
        (true, false)
    );
}

#[test]
fn a_snapshot_is_stored_as_its_definition_under_its_hash() {
    let snapshot = nested();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(text, snapshot.text().get());
    let restored: Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(restored.hash(), snapshot.hash());
    assert_eq!(restored.hash().len(), 64);
    assert_eq!(successor(restored.tree(), "c2"), Some("join"));
    let other_order: WorkflowDef = read(json!({"tasks": [task("a")], "name": "w"})).unwrap();
    let other_order = Snapshot::compile(other_order, &Lookups::default()).unwrap();
    assert_eq!(other_order.hash(), compile(json!([task("a")])).hash());
    assert_ne!(other_order.hash(), compile(json!([task("b")])).hash());
    assert!(snapshot.output().is_none());
}

#[test]
fn a_failure_workflow_is_a_name_or_an_expression() {
    let of = |name: Value| {
        let definition = json!({"name": "w", "failureWorkflow": name, "tasks": [task("a")]});
        let snapshot = Snapshot::compile(read(definition).unwrap(), &Lookups::default()).unwrap();
        snapshot
            .failure_workflow()
            .map(|template| template.is_one_expression())
    };
    assert_eq!(of(json!("cleanup")), Some(false));
    assert_eq!(of(json!("$workflow.input.name")), Some(true));
    assert_eq!(of(json!("${workflow.input.name}")), Some(true));
    assert_eq!(of(json!("")), None);
    assert_eq!(of(json!(null)), None);
}

#[test]
fn the_same_reference_twice_is_refused() {
    let error = Snapshot::compile(
        definition(json!([task("a"), task("a")])),
        &Lookups::default(),
    )
    .unwrap_err();
    assert_eq!(error, CompileError::DuplicateReference("a".to_owned()));
}

#[test]
fn task_records_show_their_operator() {
    let shown = |task_type: &str| {
        let snapshot = compile(json!([{"name": "n", "taskReferenceName": "r", "type": task_type}]));
        let node = snapshot.tree().find("r").unwrap();
        (
            node.task_type_shown().to_owned(),
            node.task_def_name_shown().to_owned(),
        )
    };
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    assert_eq!(shown("SIMPLE"), pair("n", "n"));
    assert_eq!(shown("ANYTHING"), pair("ANYTHING", "n"));
    assert_eq!(shown("FORK_JOIN"), pair("FORK", "FORK"));
    assert_eq!(shown("FORK_JOIN_DYNAMIC"), pair("FORK", "FORK"));
    assert_eq!(shown("JOIN"), pair("JOIN", "JOIN"));
    assert_eq!(shown("SWITCH"), pair("SWITCH", "SWITCH"));
    assert_eq!(shown("DO_WHILE"), pair("DO_WHILE", "n"));
    assert_eq!(shown("WAIT"), pair("WAIT", "n"));
}

#[test]
fn every_known_type_has_its_operator() {
    for task_type in kind::OPERATORS {
        let snapshot = compile(json!([{"name": "n", "taskReferenceName": "r", "type": task_type}]));
        let operator = snapshot.tree().find("r").unwrap().operator();
        assert!(!matches!(operator, Operator::UserDefined), "{task_type}");
    }
    let snapshot =
        compile(json!([{"name": "n", "taskReferenceName": "r", "type": "KAFKA_PUBLISH"}]));
    assert!(matches!(
        snapshot.tree().find("r").unwrap().operator(),
        Operator::UserDefined
    ));
}

#[test]
fn a_wide_definition_is_compiled_in_linear_time() {
    let branches: Vec<_> = (0..9000).map(|n| json!([task(&format!("b{n}"))])).collect();
    let snapshot = compile(json!([
        operator("f", "FORK_JOIN", json!({"forkTasks": branches})),
        operator("j", "JOIN", json!({}))
    ]));
    let tree = snapshot.tree();
    assert_eq!(tree.contents(id(tree, "f")).count(), 9000);
    assert_eq!(successor(tree, "b8999"), Some("j"));
}

/// A random list of nodes; references are numbered by `next`.
fn any_list(depth: u32) -> BoxedStrategy<Vec<Value>> {
    let leaf = prop_oneof![
        Just(json!({"type": "SIMPLE"})),
        Just(json!({"type": "TERMINATE"})),
        Just(json!({"type": "JOIN"}))
    ];
    if depth == 0 {
        return prop::collection::vec(leaf, 0..3).boxed();
    }
    let inner = || any_list(depth - 1);
    let node = prop_oneof![
        3 => leaf,
        1 => (inner(), inner()).prop_map(|(x, d)| json!({"type": "SWITCH", "decisionCases": {"x": x}, "defaultCase": d})),
        1 => (inner(), inner()).prop_map(|(a, b)| json!({"type": "FORK_JOIN", "forkTasks": [a, b]})),
        1 => inner().prop_map(|body| json!({"type": "DO_WHILE", "loopOver": body})),
    ];
    prop::collection::vec(node, 0..4).boxed()
}

fn number(list: &mut Value, next: &mut u32) {
    for node in list.as_array_mut().unwrap() {
        node["name"] = "n".into();
        node["taskReferenceName"] = format!("r{next}").into();
        *next += 1;
        for path in [
            "/decisionCases/x",
            "/defaultCase",
            "/forkTasks/0",
            "/forkTasks/1",
            "/loopOver",
        ] {
            if let Some(inner) = node.pointer_mut(path) {
                number(inner, next);
            }
        }
    }
}

/// What follows each node of a list, by definition and without the tree.
fn expected(list: &Value, after: Option<&str>, found: &mut BTreeMap<String, Option<String>>) {
    let list = list.as_array().unwrap();
    for (position, node) in list.iter().enumerate() {
        let reference = node["taskReferenceName"].as_str().unwrap();
        let sibling = list
            .get(position + 1)
            .map(|next| next["taskReferenceName"].as_str().unwrap());
        let next = sibling.or(after);
        let own = if node["type"] == "TERMINATE" {
            None
        } else {
            next
        };
        found.insert(reference.to_owned(), own.map(str::to_owned));
        let join = list
            .get(position + 1)
            .filter(|next| next["type"] == "JOIN")
            .and(sibling);
        for (path, after) in [
            ("/decisionCases/x", next),
            ("/defaultCase", next),
            ("/forkTasks/0", join),
            ("/forkTasks/1", join),
            ("/loopOver", Some(reference)),
        ] {
            if let Some(inner) = node.pointer(path) {
                expected(inner, after, found);
            }
        }
    }
}

proptest! {
    #[test]
    fn successors_of_random_definitions(list in any_list(3)) {
        let mut list = Value::Array(list);
        number(&mut list, &mut 0);
        let mut wanted = BTreeMap::new();
        expected(&list, None, &mut wanted);
        let snapshot = compile(list);
        let tree = snapshot.tree();
        let found: BTreeMap<_, _> = tree
            .nodes()
            .map(|node| (node.reference().to_owned(), successor(tree, node.reference()).map(str::to_owned)))
            .collect();
        prop_assert_eq!(found, wanted);
    }
}
