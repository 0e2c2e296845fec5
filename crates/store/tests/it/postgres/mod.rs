//! The layer below the PostgreSQL store: connecting, TLS, what servers are refused, migrations.

use longhaul_store::Error;
use longhaul_store::postgres::Options;
use longhaul_store::postgres::connect::{Connected, Role, connect};

mod connecting;
mod inspecting;
mod migrating;
mod tls;

/// Returns a connection of a writer.
async fn writer(url: &str) -> Connected {
    connect(&Options::parse(url).unwrap(), Role::Writer)
        .await
        .unwrap()
}

/// Returns why there is no connection.
async fn refusal(url: &str) -> String {
    let options = Options::parse(url).unwrap();
    match connect(&options, Role::Writer).await {
        Err(Error::Unavailable(why)) => why,
        Err(other) => panic!("{url}: {other:?}"),
        Ok(_) => panic!("{url}: connected"),
    }
}

/// Returns the only value of a query.
async fn value(client: &Connected, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap().get(0)
}
