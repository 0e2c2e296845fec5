//! The code that the macros generate: calls, definitions and bodies.

use longhaul_sdk::{
    Activity, ActivityContext, ActivityResult, Failure, Query, Signal, State, Update, Workflow,
    WorkflowContext, WorkflowResult, activity, workflow,
};
use serde::{Deserialize, Serialize};

use crate::support::{Bench, QUEUE};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u32,
    items: Vec<String>,
}

/// Charges an order.
#[activity]
async fn charge(order: Order, currency: String) -> ActivityResult<String> {
    Ok(format!("{} {currency}", order.id))
}

#[activity(name = "look.up")]
fn look_up(context: ActivityContext, mut names: Vec<String>) -> ActivityResult<Vec<String>> {
    names.push(context.info().activity_type.clone());
    Ok(names)
}

/// A parameter with a pattern, and a result with its full type.
#[activity]
async fn add((a, b): (u32, u32)) -> Result<u32, Failure> {
    a.checked_add(b).ok_or_else(|| Failure::new("too much"))
}

#[activity]
fn nothing() -> ActivityResult<()> {
    Ok(())
}

const GO: Signal<u32> = Signal::new("go");
const COUNT: Query<(), u32> = Query::new("count");
const BUMP: Update<u32, u32> = Update::new("bump");

/// Charges an order, then adds the number of a signal.
#[workflow(name = "shop.checkout", signals(GO), queries(COUNT), updates(BUMP))]
async fn checkout(
    ctx: WorkflowContext,
    order: Order,
    seed: Option<u32>,
) -> WorkflowResult<(String, u32)> {
    let count = State::new(seed.unwrap_or(1));
    ctx.on_query(&COUNT, &count, |count, ()| *count);
    ctx.on_update(&BUMP, &count, |count, by| {
        *count += by;
        Ok(*count)
    });
    let receipt = ctx.activity(charge(order, "EUR".to_owned())).await?;
    ctx.activity(nothing()).await?;
    let names = ctx.activity(look_up(vec!["x".to_owned()])).await?;
    let go = ctx.signals(&GO).recv().await?;
    let sum = ctx.activity(add((go, count.get()))).await?;
    Ok((format!("{receipt} {}", names.join(",")), sum))
}

mod elsewhere {
    use super::*;

    /// Visible outside of its module, with its type and its body.
    #[workflow]
    pub(super) async fn echo(_ctx: WorkflowContext, text: String) -> WorkflowResult<String> {
        Ok(text)
    }
}

/// Programs written before the context was renamed still compile.
mod earlier_name {
    #![allow(deprecated, reason = "this is the name that is deprecated")]

    use longhaul_sdk::{Context, WorkflowResult, workflow};

    #[workflow]
    pub(super) async fn greet(ctx: Context, name: String) -> WorkflowResult<String> {
        ctx.sleep(std::time::Duration::ZERO).await?;
        Ok(format!("hello, {name}"))
    }
}

/// The generated code does not depend on its surroundings: this module has other items with the names that it uses.
mod crowded {
    #![no_implicit_prelude]

    use ::longhaul_sdk as other_name;

    #[allow(dead_code, reason = "only their names matter")]
    mod longhaul_sdk {
        pub(super) struct ActivityCall;
        pub(super) struct WorkflowContext;
    }
    #[allow(dead_code, reason = "only its name matters")]
    pub(super) struct String;

    #[other_name::activity]
    pub(super) fn shout(
        __context: ::std::string::String,
    ) -> other_name::ActivityResult<::std::string::String> {
        ::std::result::Result::Ok(__context.to_uppercase())
    }

    #[other_name::workflow(name = "crowded.relay")]
    pub(super) async fn relay(
        context: other_name::WorkflowContext,
        run: ::std::string::String,
    ) -> other_name::WorkflowResult<::std::string::String> {
        ::std::result::Result::Ok(context.activity(shout(run)).await?)
    }
}

fn order() -> Order {
    Order {
        id: 7,
        items: vec!["pen".to_owned()],
    }
}

#[tokio::test]
async fn bodies_stay_callable() {
    let receipt = charge::run(order(), "EUR".to_owned()).await.unwrap();
    assert_eq!(receipt, "7 EUR");
    assert_eq!(add::run((1, 2)).await.unwrap(), 3);
    assert_eq!(
        add::run((u32::MAX, 2)).await.unwrap_err().message(),
        "too much"
    );
    nothing::run().unwrap();
}

#[test]
fn names_are_those_of_the_functions_or_of_the_attributes() {
    assert_eq!(charge::definition().name(), "charge");
    assert_eq!(look_up::definition().name(), "look.up");
    assert_eq!(checkout::definition().name(), "shop.checkout");
    assert_eq!(elsewhere::echo::definition().name(), "echo");
    assert_eq!(charge(order(), "EUR".to_owned()).name(), "charge");
    assert_eq!(checkout(order(), None).name(), "shop.checkout");
}

#[tokio::test]
async fn a_workflow_runs_with_the_generated_code() {
    let bench = Bench::new().await;
    let working = bench
        .work(|worker| {
            worker
                .workflow::<checkout>()
                .workflow::<elsewhere::echo>()
                .workflow::<crowded::relay>()
                .workflow::<earlier_name::greet>()
                .activity::<crowded::shout>()
                .activity::<charge>()
                .activity::<look_up>()
                .activity::<add>()
                .activity::<nothing>()
        })
        .await;
    let start = bench.client.start(checkout(order(), Some(4)));
    let handle = start.id("order-7").queue(QUEUE).await.unwrap();
    assert_eq!(handle.update(&BUMP, 2).await.unwrap(), 6);
    assert_eq!(handle.query(&COUNT, ()).await.unwrap(), 6);
    handle.signal(&GO, 10).await.unwrap();
    let expected = ("7 EUR x,look.up".to_owned(), 16);
    assert_eq!(handle.result().await.unwrap(), expected);

    let echo = bench.client.start(elsewhere::echo("hello".to_owned()));
    let echo = echo.queue(QUEUE).await.unwrap();
    assert_eq!(echo.result().await.unwrap(), "hello");
    let relay = bench.client.start(crowded::relay("hello".to_owned()));
    let relay = relay.queue(QUEUE).await.unwrap();
    assert_eq!(relay.result().await.unwrap(), "HELLO");
    let greet = bench.client.start(earlier_name::greet("Ada".to_owned()));
    let greet = greet.queue(QUEUE).await.unwrap();
    assert_eq!(greet.result().await.unwrap(), "hello, Ada");
    working.stop().await;
}
