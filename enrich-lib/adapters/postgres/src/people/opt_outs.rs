//! The statements that change opt-outs, for commands and for the copy of a data directory.

use enrich_store::accounts::{CopyError, Tx};
use enrich_store::value::values;
use enrich_store::{EmailHasher, OptOut};

use super::key::{CHECK_KEY, fingerprint};
use crate::column::at;

/// Maximum number of opt-outs in one statement.
pub(super) const CHUNK_ROWS: usize = 10_000;

/// The advisory lock of an import, and of a copy with opt-outs: "import" in ASCII.
pub(super) const LOCK: i64 = 0x69_6d_70_6f_72_74;

/// Locks the people against imports until the end of the transaction. `false`: an import has locked them.
pub(super) const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock($1)";

/// Opts people out, or withdraws their opt-outs if `$2`.
pub(super) const CHANGE: &str = "INSERT INTO opt_out AS o (email_hash, is_withdrawn, at)
     SELECT i.hash, $2::boolean, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
     FROM (SELECT DISTINCT unnest($1::bytea[]) AS hash ORDER BY hash) i
     -- There is nothing to withdraw for a person who never opted out.
     WHERE NOT $2 OR EXISTS (SELECT FROM opt_out p WHERE p.email_hash = i.hash)
     ON CONFLICT (email_hash) DO UPDATE SET is_withdrawn = excluded.is_withdrawn, at = excluded.at
     WHERE o.is_withdrawn <> excluded.is_withdrawn";

/// Opts people out at the times `$2`, except those who withdrew an opt-out later.
const COPY: &str = "INSERT INTO opt_out AS o (email_hash, is_withdrawn, at)
     SELECT hash, false, at FROM unnest($1::bytea[], $2::bigint[]) AS i (hash, at)
     ON CONFLICT (email_hash) DO UPDATE SET is_withdrawn = false, at = excluded.at
     WHERE o.at < excluded.at OR o.at = excluded.at AND o.is_withdrawn";

/// The records of the people among `$1`, or of all, who opted out.
macro_rules! opted_out {
    () => {
        "FROM opt_out o JOIN person p
             ON p.email_hash BETWEEN substring(o.email_hash FOR 8) || decode('0000000000000000', 'hex')
                 AND substring(o.email_hash FOR 8) || decode('ffffffffffffffff', 'hex')
         WHERE NOT o.is_withdrawn AND ($1::bytea[] IS NULL OR o.email_hash = ANY ($1::bytea[]))"
    };
}

/// Deletes these records. Leaves those that an import has locked, which deletes them itself before its commit.
///
/// By ctid: the planner overestimates the records of an opt-out, and would join the hashes with all people.
pub(super) const DELETE_OPTED_OUT: &str = concat!(
    "DELETE FROM person WHERE ctid = ANY (ARRAY(SELECT p.ctid ",
    opted_out!(),
    " FOR UPDATE OF p SKIP LOCKED))"
);

/// Counts these records.
pub(super) const COUNT_OPTED_OUT: &str = concat!("SELECT count(*) ", opted_out!());

/// Adds opt-outs of a data directory, with hashes under the key of `hasher`, and deletes the records of people who
/// opted out. Part of the transaction that copies the accounts, so that no copied key finds them.
///
/// Errors: [`CopyError::OtherPeopleKey`]; [`CopyError::Importing`].
pub async fn copy_opt_outs(
    tx: &mut Tx<'_>,
    hasher: &EmailHasher,
    opt_outs: &[OptOut],
) -> Result<(), CopyError> {
    if !tx.value::<bool>(CHECK_KEY, values![fingerprint(hasher)]).await? {
        return Err(CopyError::OtherPeopleKey);
    }
    if !tx.value::<bool>(TRY_LOCK, values![LOCK]).await? {
        return Err(CopyError::Importing);
    }
    for chunk in opt_outs.chunks(CHUNK_ROWS) {
        // Arrays as text, which PostgreSQL converts.
        let hashes = array(chunk, |opt_out| {
            let hash = u128::from_be_bytes(opt_out.email_hash);
            format!(r#""\\x{hash:032x}""#)
        });
        let times = array(chunk, |opt_out| at(opt_out.at).to_string());
        tx.execute(COPY, values![hashes, times]).await?;
    }
    tx.execute(DELETE_OPTED_OUT, values![None::<&str>]).await?;
    Ok(())
}

/// Returns an array of PostgreSQL as text.
fn array(opt_outs: &[OptOut], element: impl Fn(&OptOut) -> String) -> String {
    let elements: Vec<_> = opt_outs.iter().map(element).collect();
    format!("{{{}}}", elements.join(","))
}
