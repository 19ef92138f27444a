//! Copies all accounts of a data directory to PostgreSQL, in one transaction.

use std::collections::BTreeMap;
use std::ops::Range;

use enrich_lib::key::KeyId;
use enrich_lib::model::{Timestamp, WorkspaceId};
use thiserror::Error;

use super::check::sums;
use super::spends::LOCK_REMOVALS;
use super::transaction::{Accounts, Tx};
use crate::database::Access;
use crate::error::StoreError;
use crate::records::AuditRow;
use crate::value::{FromValue, Row, Value, values};

/// The copied tables, each after those that it refers to, and a key in whose order its rows are read.
/// Sessions and unused links are not copied.
const TABLES: [(&str, &str); 10] = [
    ("workspace", "rowid"),
    ("api_key", "rowid"),
    ("credit_grant", "rowid"),
    ("credit_spend", "lookup_id"),
    ("credit_receipt", "workspace, receipt"),
    ("removed_spends", "workspace, key"),
    ("usage_day", "day, workspace, key, outcome"),
    ("member", "rowid"),
    ("member_recovery_code", "member, digest"),
    ("audit_event", "rowid"),
];

/// The column of the source that has another name in the target, which has no running total of spends.
const RENAMED: (&str, &str) = ("spent", "copied_spent");

/// The maximum number of parameters of a statement. PostgreSQL accepts up to 65,535, but then takes a third
/// longer for each row.
const PARAMETERS_MAX: usize = 3_000;

/// A table that is copied.
struct Table {
    name: &'static str,
    order: &'static str,
    /// All columns that it has in the source, except the row number. A column with the name of a copied table
    /// is the row number of a row in it.
    columns: Vec<String>,
}

/// The row numbers in the target by those in the source, of each table that others refer to.
type RowNumbers = BTreeMap<&'static str, BTreeMap<i64, i64>>;

/// The numbers of copied rows, by table.
pub type CopiedRows = BTreeMap<&'static str, u64>;

/// The reason why accounts were not copied.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The target has a workspace with the name of a copied one. Nothing was written.
    #[error("there is already a workspace {0}; nothing was copied")]
    WorkspaceExists(WorkspaceId),
    /// The target has a key with the id of a copied one. Nothing was written.
    #[error("there is already a key with the id {0}; nothing was copied")]
    KeyExists(KeyId),
    /// The target has hashes of emails under another key than the source. Nothing was written.
    #[error(
        "the people and opt-outs in the database were made under another `people.key`; nothing was copied"
    )]
    OtherPeopleKey,
    /// An import of people into the target is running, which can have locked the records of people who opted out.
    /// Nothing was written.
    #[error("an import of people into the database is running; nothing was copied")]
    Importing,
    /// The source was copied completely before, but not to this target. Nothing was written.
    #[error("the accounts were copied before, but not to this database; nothing was copied")]
    CopiedElsewhere,
    /// The audit of the source found errors. Nothing was written.
    #[error("the balances of the source do not reconcile with their rows; nothing was copied")]
    NotReconciled,
    /// The target changed the rows, as this sentence states. Nothing was written.
    #[error("{0}; nothing was copied")]
    Differs(String),
    /// A database failed before the commit. Nothing was written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The commit failed. It may have been executed.
    #[error(transparent)]
    Commit(StoreError),
}

/// The accounts that are copied.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Identifies them in the target.
    pub id: [u8; 16],
    /// Whether a target has all of them.
    pub is_copied: bool,
}

impl Accounts {
    /// Copies all accounts of `source`, a data directory that nothing changes meanwhile, into this database.
    /// Returns `None` if they were copied before.
    ///
    /// The totals and the usage of the source must include all spends. The transaction is committed only if both
    /// sides have the same rows and the same sums, and the totals match them. `progress` receives the number of
    /// copied rows and of all rows. `copy_more` adds to the transaction what belongs to the accounts.
    pub async fn copy_from(
        &mut self,
        source: &mut Self,
        origin: Origin,
        now: Timestamp,
        progress: &mut (dyn FnMut(u64, u64) + Send),
        copy_more: impl AsyncFnOnce(&mut Tx<'_>) -> Result<(), CopyError>,
    ) -> Result<Option<CopiedRows>, CopyError> {
        if self.has_copied(source, origin).await? {
            return Ok(None);
        }
        let audit = source.audit().await?;
        if !audit.reconciles() {
            return Err(CopyError::NotReconciled);
        }
        let mut from = source.database.begin(Access::Scan).await?;
        let (mut tables, mut all) = (Vec::new(), 0);
        for (name, order) in TABLES {
            tables.push(Table::read(name, order, &mut *from).await?);
            all += from.value::<u64>(&format!("SELECT count(*) FROM {name}"), &[]).await?;
        }

        let mut to = self.database.begin(Access::Load).await?;
        let (mut copied, mut numbers) = (CopiedRows::new(), RowNumbers::new());
        for table in &tables {
            let before: u64 = copied.values().sum();
            let progress = |rows| progress(before + rows, all);
            if tables.iter().any(|other| other.refers_to(table)) {
                numbers.insert(table.name, BTreeMap::new());
            }
            copied.insert(table.name, table.copy(&mut *from, &mut *to, &mut numbers, progress).await?);
        }
        compare(&mut *to, &audit.workspaces).await?;
        copy_more(&mut *to).await?;
        to.execute("INSERT INTO copied_store (id, at) VALUES ($1, $2)", values![&origin.id[..], now]).await?;
        // A removal of old spends would delete copied ones that it has not added to the sums.
        to.execute(LOCK_REMOVALS, &[]).await?;
        to.commit().await.map_err(CopyError::Commit)?;
        Ok(Some(copied))
    }

    /// Returns whether `source` was copied. Fails if it was not and one of its workspaces or keys exists, or if it was
    /// copied elsewhere.
    async fn has_copied(&mut self, source: &mut Self, origin: Origin) -> Result<bool, CopyError> {
        // One snapshot: an interrupted copy may be committed at any time, and then all of it exists.
        let (mut to, mut from) = (self.read().await?, source.read().await?);
        if to.exists("SELECT 1 FROM copied_store WHERE id = $1", values![&origin.id[..]]).await? {
            return Ok(true);
        }
        if origin.is_copied {
            return Err(CopyError::CopiedElsewhere);
        }
        if let Some(id) = common(&mut *from, &mut *to, "workspace", "lower(id)").await? {
            return Err(CopyError::WorkspaceExists(id));
        }
        match common(&mut *from, &mut *to, "api_key", "id").await? {
            Some(id) => Err(CopyError::KeyExists(id)),
            None => Ok(false),
        }
    }
}

/// Returns an `id` for which rows of both sides have the same `name`. There are few rows in the target, if any.
async fn common<T: FromValue>(
    from: &mut Tx<'_>,
    to: &mut Tx<'_>,
    table: &str,
    name: &str,
) -> Result<Option<T>, StoreError> {
    let exists = format!("SELECT 1 FROM {table} WHERE {name} = $1");
    for mut row in to.query(&format!("SELECT id, {name} FROM {table}"), &[]).await? {
        let id = row.read()?;
        if from.exists(&exists, &row.into_values()).await? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Checks that these workspaces have the same totals and sums in the target, and that all of its totals match
/// its rows.
async fn compare(to: &mut Tx<'_>, workspaces: &[AuditRow]) -> Result<(), CopyError> {
    for (table, _) in TABLES {
        // The planner has no statistics of new rows, and the sums read all of them.
        to.execute(&format!("ANALYZE {table}"), &[]).await?;
    }
    let audit = sums(to).await?;
    let copied: BTreeMap<_, _> = audit.workspaces.iter().map(|row| (&row.id, row)).collect();
    match workspaces.iter().find(|row| copied.get(&row.id) != Some(row)) {
        Some(row) => Err(differs("workspace", row.id.as_str())),
        None if !audit.errors.is_empty() => Err(CopyError::Differs(audit.errors.join("; "))),
        None => Ok(()),
    }
}

fn differs(what: &str, name: &str) -> CopyError {
    CopyError::Differs(format!("the copy of {what} {name} differs from its source"))
}

impl Table {
    async fn read(name: &'static str, order: &'static str, source: &mut Tx<'_>) -> Result<Self, StoreError> {
        let select = "SELECT name FROM pragma_table_info($1) WHERE name <> 'rowid' ORDER BY cid";
        Ok(Self { name, order, columns: source.rows(select, values![name], Row::read).await? })
    }

    /// Returns whether a column has row numbers of `other`.
    fn refers_to(&self, other: &Self) -> bool {
        self.columns.iter().any(|column| column == other.name)
    }

    /// Copies all rows and returns their number. Adds their row numbers if `numbers` has an entry for the
    /// table.
    async fn copy(
        &self,
        from: &mut Tx<'_>,
        to: &mut Tx<'_>,
        numbers: &mut RowNumbers,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, CopyError> {
        let order = self.order.split(", ").count();
        let mut own_numbers = numbers.remove(self.name);
        let references: Vec<_> = self.columns.iter().map(|column| numbers.get(column.as_str())).collect();
        let (mut copied, mut last) = (0, Vec::new());
        let (mut insert, mut insert_rows) = (String::new(), 0);
        loop {
            let rows = from.query(&self.select(last.len()), &last).await?;
            if rows.is_empty() {
                break;
            }
            if insert_rows != rows.len() {
                (insert, insert_rows) = (self.insert(rows.len(), own_numbers.is_some()), rows.len());
            }
            let (mut sources, mut values) = (Vec::new(), Vec::new());
            for row in rows {
                last = row.into_values();
                for (value, numbers) in last.split_off(order).into_iter().zip(&references) {
                    values.push(in_target(value, *numbers)?);
                }
                if own_numbers.is_some() {
                    sources.push(i64::from_value(last[0].clone())?);
                }
            }
            let mut inserted = Vec::with_capacity(values.len());
            for (n, row) in to.query(&insert, &values).await?.into_iter().enumerate() {
                inserted.extend(row.into_values());
                if let Some(numbers) = &mut own_numbers {
                    let target = i64::from_value(inserted.pop().unwrap_or(Value::Null))?;
                    numbers.insert(sources[n], target);
                }
            }
            if inserted != values {
                return Err(differs("table", self.name));
            }
            copied += insert_rows as u64;
            progress(copied);
        }
        numbers.extend(own_numbers.map(|own| (self.name, own)));
        Ok(copied)
    }

    /// Returns the statement that reads the next rows after one whose order has this number of columns, or
    /// the first rows if it is 0. The columns of the order precede the others.
    fn select(&self, after: usize) -> String {
        let Self { name, order, columns } = self;
        let condition = match after {
            0 => String::new(),
            after => format!("WHERE ({order}) > ({})", parameters(0..after)),
        };
        let (limit, columns) = (PARAMETERS_MAX / columns.len(), columns.join(", "));
        format!("SELECT {order}, {columns} FROM {name} {condition} ORDER BY {order} LIMIT {limit}")
    }

    /// Returns the statement that inserts this number of rows and returns them as they are in the target, with
    /// their row numbers if `is_numbered`.
    fn insert(&self, rows: usize, is_numbered: bool) -> String {
        let (renamed, new_name) = RENAMED;
        let columns = self.columns.iter().map(String::as_str);
        let columns: Vec<_> = columns.map(|name| if name == renamed { new_name } else { name }).collect();
        let row = |n: usize| format!("({})", parameters(n * columns.len()..(n + 1) * columns.len()));
        let rows: Vec<_> = (0..rows).map(row).collect();
        let (columns, rowid) = (columns.join(", "), if is_numbered { ", rowid" } else { "" });
        format!("INSERT INTO {} ({columns}) VALUES {} RETURNING {columns}{rowid}", self.name, rows.join(", "))
    }
}

/// Returns the parameters with these numbers, counted from 0.
fn parameters(numbers: Range<usize>) -> String {
    let parameters: Vec<_> = numbers.map(|n| format!("${}", n + 1)).collect();
    parameters.join(", ")
}

/// Returns the value of a column in the target. `numbers` are those of the table to which the column refers.
fn in_target(
    value: Value<'static>,
    numbers: Option<&BTreeMap<i64, i64>>,
) -> Result<Value<'static>, StoreError> {
    let Some(numbers) = numbers else { return Ok(value) };
    let source = i64::from_value(value)?;
    let target = numbers.get(&source).ok_or_else(|| StoreError::Column(format!("found no row {source}")))?;
    Ok((*target).into())
}
