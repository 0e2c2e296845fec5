//! What the macros refuse, in which words and at which place. What they make is compiled and run by the tests of
//! `longhaul-sdk`.

use proc_macro2::TokenStream;

type Expand = fn(TokenStream, TokenStream) -> syn::Result<TokenStream>;

/// The message, and the piece of source it points at.
fn error(expand: Expand, attribute: &str, item: &str) -> (String, String) {
    let parse = |text: &str| text.parse::<TokenStream>().unwrap();
    match expand(parse(attribute), parse(item)) {
        Ok(_) => panic!("this was taken: {item}"),
        Err(error) => {
            let place = error.span().source_text().unwrap_or_default();
            (error.to_string(), place)
        }
    }
}

#[track_caller]
fn check(expand: Expand, attribute: &str, item: &str, message: &str, place: &str) {
    let (said, shown) = error(expand, attribute, item);
    assert_eq!(said, message, "{item}");
    assert_eq!(shown, place, "{item}");
}

const ACTIVITY: Expand = crate::activity::expand;
const WORKFLOW: Expand = crate::workflow::expand;

#[test]
fn functions_that_cannot_be_activities_are_refused_where_it_shows() {
    for (item, message, place) in [
        (
            "async fn f<T>(a: T) -> ActivityResult<T> { }",
            "an activity cannot be generic: it is known by one name and must have one type",
            "T",
        ),
        (
            "async fn f(a: u8) -> ActivityResult<()> where u8: Copy { }",
            "an activity cannot be generic, so there is nothing to say `where` about",
            "where",
        ),
        (
            "async fn f(a: u8) { }",
            "an activity returns `ActivityResult<…>`",
            ")",
        ),
        (
            "async fn f() -> u8 { }",
            "an activity returns `ActivityResult<…>`",
            "u8",
        ),
        (
            "async fn f() -> (u8, u8) { }",
            "an activity returns `ActivityResult<…>`",
            "(u8, u8)",
        ),
        (
            "async fn f(name: &str) -> ActivityResult<()> { }",
            "arguments are read from a payload: take an owned type, such as `String` for `&str`",
            "&",
        ),
        (
            "async fn f(name: impl Into<String>) -> ActivityResult<()> { }",
            "arguments are read from a payload: name the type",
            "impl",
        ),
        (
            "async fn f(&self) -> ActivityResult<()> { }",
            "an activity is a free function, without `self`",
            "self",
        ),
        (
            "async fn f(ctx: &ActivityContext) -> ActivityResult<()> { }",
            "the context is given away: take `ActivityContext` without `&`",
            "&",
        ),
        (
            "async fn f(a: u8, ctx: sdk::ActivityContext) -> ActivityResult<()> { }",
            "the context is the first parameter",
            "sdk::ActivityContext",
        ),
        (
            "const fn f() -> ActivityResult<()> { }",
            "an activity cannot be `const`",
            "const",
        ),
        (
            "unsafe fn f() -> ActivityResult<()> { }",
            "an activity cannot be `unsafe`: the worker has no promise to make",
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
fn functions_that_cannot_be_workflows_are_refused_where_it_shows() {
    for (item, message, place) in [
        (
            "fn f(ctx: WorkflowContext) -> WorkflowResult<()> { }",
            "a workflow is `async`: it waits for what it asks for",
            "fn",
        ),
        (
            "async fn f() -> WorkflowResult<()> { }",
            "a workflow takes a `WorkflowContext` first",
            ")",
        ),
        (
            "async fn f(ctx: &WorkflowContext) -> WorkflowResult<()> { }",
            "the context is given away: take `WorkflowContext` without `&`",
            "&",
        ),
        (
            "async fn f(ctx: WorkflowContext) { }",
            "a workflow returns `WorkflowResult<…>`",
            ")",
        ),
        (
            "async fn f<'a>(ctx: WorkflowContext) -> WorkflowResult<()> { }",
            "a workflow cannot be generic: it is known by one name and must have one type",
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
fn what_is_made_names_the_sdk_by_its_whole_path() {
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
