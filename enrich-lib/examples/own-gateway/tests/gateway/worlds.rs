//! Simulated worlds: nodes of the gateway, whose credits are in its own tables on a database server.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use enrich_fakes::sql::SqlServer;
use enrich_lib::credit::Balance;
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::ports::async_trait;
use enrich_sim::{CreditDatabase, Listener, Plan, Ports, TcpStream, World, each_seed, seeds};
use enrich_tower::EnrichLayer;
use own_gateway::credits::{BALANCE, CreditTable};
use own_gateway::database::{Connect, Connection, Database, Failure, SCHEMA};
use tokio_postgres::{Config, NoTls};

const SEEDS: u64 = 100;

#[test]
fn worlds_keep_all_invariants() {
    each_seed(seeds(SEEDS), |seed| drop(world(seed).run().check()));
}

fn world(seed: u64) -> World {
    let plan = Plan::from_seed_on_servers(seed);
    let clock = plan.servers.postgres;
    let world = World::with_plan(plan).with_keys(|number| format!("sk_live_{number:032}"));
    let accounts = world.credits().into_iter().map(|(workspace, credits)| {
        format!("INSERT INTO account VALUES ('{workspace}', 500, 60, {credits}, {credits});")
    });
    let sql = SCHEMA.to_owned() + &accounts.collect::<String>();
    let server = SqlServer::new(&sql, move || clock.now().unix_ms()).expect("valid SQL");
    world.with_database(Arc::new(Tables(server))).with_service(serve)
}

async fn serve(listener: Listener, ports: Ports) -> Result<(), Box<dyn Error>> {
    let credits = Arc::new(CreditTable(Arc::new(Database::new(connect_from(ports.clone())))));
    let mut service = ports.stores();
    service.credits = credits.clone();
    let enrich =
        EnrichLayer::new(ports.record(service)).arrivals(ports.arrivals()).observer(ports.observer());
    tokio::spawn(own_gateway::expire_holds(credits));
    listener.serve(own_gateway::routes(enrich.clone()), ports.shutdown()).await?;
    enrich.drain().await;
    Ok(())
}

fn connect_from(ports: Ports) -> Connect {
    Box::new(move || {
        let ports = ports.clone();
        Box::pin(async move {
            let stream = ports.connect().await.map_err(|error| Failure::Unknown(error.into()))?;
            let (client, connection) = Config::new().user("gateway").connect_raw(stream, NoTls).await?;
            Ok(Connection::new(client, connection))
        })
    })
}

struct Tables(SqlServer);

#[async_trait]
impl CreditDatabase for Tables {
    async fn serve(&self, stream: TcpStream) {
        // The gateway observes the end of the connection.
        drop(self.0.serve(stream).await);
    }

    fn commits(&self) -> u64 {
        self.0.commits()
    }

    fn balance(&self, workspace: &WorkspaceId) -> Balance {
        let balance = self.0.read(|database| {
            database.query_row(BALANCE, [workspace.as_str()], |row| {
                let (granted, available) = (row.get(0)?, row.get(1)?);
                Ok(Balance { granted, available, held: row.get(2)?, spent: row.get(3)? })
            })
        });
        balance.expect("an account")
    }

    fn spends(&self) -> BTreeMap<LookupId, u64> {
        let spends = self.0.read(|database| {
            let mut select = database.prepare("SELECT lookup, credits FROM spend")?;
            let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
            rows.collect::<Result<Vec<_>, _>>()
        });
        let spends = spends.expect("a table");
        spends.into_iter().map(|(lookup, credits)| (lookup.parse().expect("an id"), credits)).collect()
    }
}
