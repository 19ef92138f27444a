//! Writes the free lookups and the last uses of keys.

use enrich_store::usage::UsageCounter;
use tokio_postgres::types::Type;

use crate::column::bigint;
use crate::connect::pool::{Parameter, Pool};
use crate::error::PostgresError;

/// Adds free lookups to the usage of their days. Workspaces that do not exist are ignored.
const COUNT: &str = "/* enrich: count free lookups */
    INSERT INTO usage_day AS u (day, workspace, key, outcome, lookups, credits)
    SELECT i.day, w.rowid, i.key, i.outcome, sum(i.lookups), 0
    FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[])
            AS i (id, key, outcome, lookups, day)
        JOIN workspace w ON w.id = i.id
    GROUP BY i.day, w.rowid, i.key, i.outcome ORDER BY i.day, w.rowid, i.key, i.outcome
    ON CONFLICT (day, workspace, key, outcome) DO UPDATE SET lookups = u.lookups + excluded.lookups
    RETURNING (SELECT set_config('synchronous_commit', 'off', true))";

/// Adds the free lookups since the last call to the usage of their days. Those of a statement that certainly had
/// no effect are written later. Those of a statement whose outcome is unknown are not counted again, so that
/// no lookup is counted twice.
pub(crate) async fn write(usage: &UsageCounter, pool: &Pool) -> Result<(), PostgresError> {
    let mut counts = usage.take();
    while !counts.is_empty() {
        let later = counts.split_off(counts.len().min(pool.sizes.rows));
        let names: Vec<_> = counts.iter().map(|count| count.workspace.as_str()).collect();
        let keys: Vec<_> = counts.iter().map(|count| i64::from(count.key.number())).collect();
        let outcomes: Vec<_> = counts.iter().map(|count| count.outcome).collect();
        let lookups: Vec<_> = counts.iter().map(|count| bigint(count.lookups)).collect();
        let days: Vec<_> = counts.iter().map(|count| i64::from(count.day.number())).collect();
        let values: [(Parameter<'_>, Type); 5] = [
            (&names, Type::TEXT_ARRAY),
            (&keys, Type::INT8_ARRAY),
            (&outcomes, Type::TEXT_ARRAY),
            (&lookups, Type::INT8_ARRAY),
            (&days, Type::INT8_ARRAY),
        ];
        if let Err(error) = pool.query(COUNT, &values).await {
            if error.had_no_effect() {
                usage.put_back(counts);
            }
            usage.put_back(later);
            return Err(error);
        }
        counts = later;
    }
    Ok(())
}
