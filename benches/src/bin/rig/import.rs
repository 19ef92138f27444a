//! Imports of people into PostgreSQL: the whole command, from the file to the commit.

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use enrich_benches::servers::{EnrichCommand, Launcher};
use tempfile::TempDir;

use crate::session::Session;
use crate::start_stores;

const BYTES: &str = "SELECT pg_total_relation_size('person')";

const DEAD_ROWS: &str = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'person'";

/// How long autovacuum may take to begin and to end.
const VACUUM_MAX: Duration = Duration::from_secs(1_800);

/// Imports `people` people, then the same again, then twice with another profile for each. Prints the rate of
/// each import and the size of the table after it.
pub(crate) fn measure(people: usize) -> Result<(), Box<dyn Error>> {
    let (launcher, dir, stores) = (Launcher::beside_current_exe()?, TempDir::new()?, start_stores());
    let session = Session::open(&stores.postgres)?;
    let mut enrich = EnrichCommand::new(&launcher, dir.path());
    enrich.stores = Some((stores.postgres.clone(), stores.redis.clone()));
    enrich.run(["migrate"])?;
    println!(
        "| import of {people} people | s | people/s | bytes a person | dead rows |\n|---|---:|---:|---:|---:|"
    );
    for (name, suffix) in
        [("into an empty table", ""), ("the same again", ""), ("all changed", "-2"), ("all changed", "-3")]
    {
        let file = enrich.write_people(people, suffix)?;
        let started_at = Instant::now();
        enrich.run(["people".as_ref(), "import".as_ref(), file.as_os_str()])?;
        let seconds = started_at.elapsed().as_secs_f64();
        let bytes = session.number(BYTES)? as f64;
        let (rate, bytes, dead) =
            (people as f64 / seconds, bytes / people as f64, session.number(DEAD_ROWS)?);
        println!("| {name} | {seconds:.1} | {rate:.0} | {bytes:.0} | {dead} |");
        wait_for_autovacuum(&session, people)?;
    }
    Ok(())
}

/// Waits until autovacuum has removed the dead rows, if they are more than its threshold.
fn wait_for_autovacuum(session: &Session, people: usize) -> Result<(), Box<dyn Error>> {
    let started_at = Instant::now();
    while session.number(DEAD_ROWS)? > people as i64 / 4 {
        if started_at.elapsed() > VACUUM_MAX {
            return Err("autovacuum did not remove the dead rows".into());
        }
        sleep(Duration::from_secs(1));
    }
    if started_at.elapsed() > Duration::from_secs(1) {
        eprintln!("autovacuum had removed the dead rows after {:.0} s", started_at.elapsed().as_secs_f64());
    }
    Ok(())
}
