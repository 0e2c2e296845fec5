//! The errors of the macros, and the places they point at. The tests of `longhaul-sdk` compile and run the generated code.

use proc_macro2::TokenStream;

type Expand = fn(TokenStream, TokenStream) -> syn::Result<TokenStream>;

/// Returns the error message, and the source text it points at.
fn error(expand: Expand, attribute: &str, item: &str) -> (String, String) {
    let parse = |text: &str| text.parse::<TokenStream>().unwrap();
    match expand(parse(attribute), parse(item)) {
        Ok(_) => panic!("this was accepted: {item}"),
        Err(error) => {
            let place = error.span().source_text().unwrap_or_default();
            (error.to_string(), place)
        }
    }
}

#[track_caller]
fn check(expand: Expand, attribute: &str, item: &str, message: &str, place: &str) {
    let (actual, actual_place) = error(expand, attribute, item);
    assert_eq!(actual, message, "{item}");
    assert_eq!(actual_place, place, "{item}");
}

const ACTIVITY: Expand = crate::activity::expand;
const WORKFLOW: Expand = crate::workflow::expand;
const WORKER_TASK: Expand = crate::worker_task::expand;

#[test]
fn functions_that_cannot_be_activities_are_refused_at_the_mistake() {
    for (item, message, place) in [
        (
            "async fn f<T>(a: T) -> ActivityResult<T> { }",
            "an activity cannot be generic: one name must refer to one type",
            "T",
        ),
        (
            "async fn f(a: u8) -> ActivityResult<()> where u8: Copy { }",
            "an activity cannot have a `where` clause, because it cannot be generic",
            "where",
        ),
        (
            "async fn f(a: u8) { }",
            "an activity must return `ActivityResult<…>`",
            ")",
        ),
        (
            "async fn f() -> u8 { }",
            "an activity must return `ActivityResult<…>`",
            "u8",
        ),
        (
            "async fn f() -> (u8, u8) { }",
            "an activity must return `ActivityResult<…>`",
            "(u8, u8)",
        ),
        (
            "async fn f(name: &str) -> ActivityResult<()> { }",
            "arguments are decoded from a payload: use an owned type, such as `String` instead of `&str`",
            "&",
        ),
        (
            "async fn f(name: impl Into<String>) -> ActivityResult<()> { }",
            "arguments are decoded from a payload: use a named type",
            "impl",
        ),
        (
            "async fn f(&self) -> ActivityResult<()> { }",
            "an activity must be a free function, without `self`",
            "self",
        ),
        (
            "async fn f(ctx: &ActivityContext) -> ActivityResult<()> { }",
            "take `ActivityContext` by value, without `&`",
            "&",
        ),
        (
            "async fn f(a: u8, ctx: sdk::ActivityContext) -> ActivityResult<()> { }",
            "`ActivityContext` must be the first parameter",
            "sdk::ActivityContext",
        ),
        (
            "const fn f() -> ActivityResult<()> { }",
            "an activity cannot be `const`",
            "const",
        ),
        (
            "unsafe fn f() -> ActivityResult<()> { }",
            "an activity cannot be `unsafe`: the worker calls it from safe code",
            "unsafe",
        ),
        (
            "extern \"C\" fn f() -> ActivityResult<()> { }",
            "an activity cannot be `extern`",
            "extern",
        ),
        ("struct S;", "expected `fn`", "struct"),
    ] {
        check(ACTIVITY, "", item, message, place);
    }
    let many: Vec<_> = (0..17).map(|i| format!("a{i}: u8")).collect();
    let item = format!("fn f({}) -> ActivityResult<()> {{ }}", many.join(", "));
    check(
        ACTIVITY,
        "",
        &item,
        "an activity takes at most 16 arguments",
        "a16: u8",
    );
}

#[test]
fn functions_that_cannot_be_workflows_are_refused_at_the_mistake() {
    for (item, message, place) in [
        (
            "fn f(ctx: WorkflowContext) -> WorkflowResult<()> { }",
            "a workflow must be `async`",
            "fn",
        ),
        (
            "async fn f() -> WorkflowResult<()> { }",
            "the first parameter of a workflow must be a `WorkflowContext`",
            ")",
        ),
        (
            "async fn f(ctx: &WorkflowContext) -> WorkflowResult<()> { }",
            "take `WorkflowContext` by value, without `&`",
            "&",
        ),
        (
            "async fn f(ctx: WorkflowContext) { }",
            "a workflow must return `WorkflowResult<…>`",
            ")",
        ),
        (
            "async fn f<'a>(ctx: WorkflowContext) -> WorkflowResult<()> { }",
            "a workflow cannot be generic: one name must refer to one type",
            "'a",
        ),
    ] {
        check(WORKFLOW, "", item, message, place);
    }
}

#[test]
fn options_are_refused_by_name() {
    let activity = "async fn f() -> ActivityResult<()> { }";
    let workflow = "async fn f(ctx: WorkflowContext) -> WorkflowResult<()> { }";
    for (expand, item, attribute, message, place) in [
        (
            ACTIVITY,
            activity,
            "queue = \"q\"",
            "unknown option `queue`; an activity takes `name = \"…\"`",
            "queue",
        ),
        (
            ACTIVITY,
            activity,
            "name = \" \"",
            "a name cannot be blank",
            "\" \"",
        ),
        (
            ACTIVITY,
            activity,
            "name = \"a\", name = \"b\"",
            "`name` is given twice",
            "name",
        ),
        (
            ACTIVITY,
            activity,
            "name = 7",
            "expected string literal",
            "7",
        ),
        (
            WORKFLOW,
            workflow,
            "signal(A)",
            "unknown option `signal`; a workflow takes `name = \"…\"`, `signals(…)`, `queries(…)` and `updates(…)`",
            "signal",
        ),
        (
            WORKFLOW,
            workflow,
            "signals(A), signals(B)",
            "`signals` is given twice",
            "signals",
        ),
        (
            WORKFLOW,
            workflow,
            "queries(\"status\")",
            "expected identifier",
            "\"status\"",
        ),
    ] {
        check(expand, attribute, item, message, place);
    }
}

#[test]
fn generated_code_uses_absolute_paths() {
    let item: TokenStream =
        "pub async fn f(ctx: WorkflowContext, (a, b): (u8, u8)) -> WorkflowResult<u8> { Ok(a + b) }"
            .parse()
            .unwrap();
    let made = WORKFLOW("signals(GO,), name = \"sum\"".parse().unwrap(), item).unwrap();
    let file: syn::File = syn::parse2(made).unwrap();
    assert_eq!(
        file.items.len(),
        5,
        "a function, a type, its body, a check and the definition"
    );
    let text = quote::quote!(#file).to_string();
    assert!(
        text.contains(":: longhaul_sdk :: WorkflowCall :: named (\"sum\")"),
        "{text}"
    );
    assert!(text.contains("argument_1 : (u8 , u8)"), "{text}");
    assert!(text.contains(". signal (& GO)"), "{text}");
}

#[test]
fn functions_that_cannot_be_workers_are_refused_at_the_mistake() {
    for (item, message, place) in [
        (
            "async fn f<T>(a: T) { }",
            "a worker cannot be generic: one name must refer to one type",
            "T",
        ),
        (
            "fn f(&self) { }",
            "a worker must be a free function, without `self`",
            "self",
        ),
        (
            "fn f(name: &str) { }",
            "parameters are read from JSON: use an owned type, such as `String` instead of `&str`",
            "&",
        ),
        (
            "fn f((a, b): (u8, u8)) { }",
            "a parameter is found in the input by its name: give it one",
            "(a, b)",
        ),
        (
            "fn f(#[serde(skip)] a: u8) { }",
            "a parameter takes `rename` and `default`",
            "skip",
        ),
    ] {
        check(WORKER_TASK, "", item, message, place);
    }
}

#[test]
fn options_of_a_worker_that_do_not_exist_are_refused_at_the_mistake() {
    let item = "fn f() { }";
    let known = concat!(
        "unknown option `threads`; a worker takes its task type, `poll_interval_millis`, `poll_timeout`, `thread_count`, `domain`, ",
        "`worker_id`, `register_task_def`, `overwrite_task_def`, `strict_schema`, `paused`, `lease_extend_enabled`, ",
        "`register_schema` and `task_definition`"
    );
    check(WORKER_TASK, "threads = 3", item, known, "threads");
    check(
        WORKER_TASK,
        "\" \"",
        item,
        "a task type cannot be blank",
        "\" \"",
    );
    let twice = "`domain` is given twice";
    check(
        WORKER_TASK,
        "\"t\", domain = \"a\", domain = \"b\"",
        item,
        twice,
        "domain",
    );
}
