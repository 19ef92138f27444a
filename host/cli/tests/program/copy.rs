//! Copying a data directory's accounts to PostgreSQL: complete, exactly once, and repeatable after any
//! interruption.

use std::process::Stdio;
use std::time::Duration;

use crate::enrich::{EMAIL, Enrich, PEOPLE_KEY, block_on, eventually};
use crate::people;
use enrich_tests::servers::Postgres;
use rusqlite::Connection;
use serde_json::{Value, json};

mod refused;

const SPENDS: u64 = 30_000;

struct Move {
    from: Enrich,
    key: String,
    to: Enrich,
    url: String,
    database: String,
}

impl Move {
    /// Creates a directory with two workspaces and this number of spends, of which `bolt` has the last one, unless it
    /// is the only one.
    fn with_spends(spends: u64) -> Self {
        let (from, key) = Enrich::with_key(spends, 500);
        from.ok(&["workspace", "create", "bolt", "--credits", "7", "--limit", "9", "--window", "30"]);
        from.ok(&["credits", "grant", "demo", "5"]);
        from.ok(&["key", "create", "demo", "revoked"]);
        let revoked = from.key_id("demo", 1);
        from.ok(&["key", "revoke", &revoked]);
        let db = Connection::open(from.data().join("accounts.db")).unwrap();
        db.execute_batch(&format!(
            "BEGIN;
             WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT {spends})
             INSERT INTO credit_spend
             SELECT unhex(printf('%012x7000', 1700000000000 + n) || hex(randomblob(8))), w.rowid, 1, 1, 1700000000000 + n
             FROM n JOIN workspace w ON w.id = iif(n > 1 AND n = {spends}, 'bolt', 'demo');
             UPDATE workspace SET spent = (SELECT count(*) FROM credit_spend WHERE workspace = workspace.rowid);
             INSERT INTO usage_day SELECT at / 86400000, workspace, key, 'billed', count(*), sum(credits)
             FROM credit_spend GROUP BY 1, 2, 3;
             COMMIT"
        ))
        .unwrap();
        let select = "SELECT lower(hex(min(lookup_id))) FROM credit_spend";
        let spend: String = db.query_row(select, [], |row| row.get(0)).unwrap();
        from.ok(&["credits", "refund", &format!("lookup_{spend}"), "--reason", "wrong profile"]);
        from.ok(&["credits", "grant", "demo", "-2", "--reason", "typo"]);
        from.ok(&["workspace", "set", "bolt", "--low-balance", "5"]);
        from.ok(&["workspace", "set", "bolt", "--display-name", "Bolt Inc."]);
        from.ok(&["workspace", "set", "bolt", "--suspend"]);
        let server = Postgres::shared();
        let database = block_on(server.create_database());
        let url = server.url(&database);
        Self { from, key, to: Enrich::with_database(url.clone()), url, database }
    }

    /// Opens the accounts of the directory.
    fn directory(&self) -> Connection {
        Connection::open(self.from.data().join("accounts.db")).unwrap()
    }

    fn args<'a>(&'a self, data: &'a str) -> [&'a str; 5] {
        ["copy", "--from", data, "--to", &self.url]
    }

    fn data(&self) -> String {
        self.from.data().to_str().unwrap().to_owned()
    }

    fn copy(&self) -> String {
        self.from.ok(&self.args(&self.data()))
    }

    fn refused(&self) -> String {
        self.from.err(&self.args(&self.data()))
    }

    /// Runs the copy and kills it after `time`. Returns `false` if it had already finished.
    fn copy_for(&self, time: Duration) -> bool {
        let mut command = self.from.command(&self.args(&self.data()));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(time); // the time of the kill
        let is_killed = child.try_wait().unwrap().is_none();
        let _ = child.kill();
        child.wait().unwrap();
        is_killed
    }

    /// Returns all listed data of an account, which must be equal on both sides.
    fn accounts(side: &Enrich) -> [Value; 5] {
        let list = |args: &[&str]| side.json(args);
        [
            list(&["workspace", "list", "--json"]),
            list(&["key", "list", "demo", "--json"]),
            list(&["check", "--json"])["credits"].clone(),
            list(&["credits", "ledger", "demo", "--from", "2023-01-01", "--json"]),
            list(&["credits", "ledger", "bolt", "--from", "2023-01-01", "--json"]),
        ]
    }

    fn numbers(&self, select: &str) -> Vec<i64> {
        block_on(Postgres::shared().numbers(&self.database, select))
    }

    fn sql(&self, statements: &str) {
        block_on(Postgres::shared().sql(&self.database, statements));
    }
}

#[test]
fn completes_after_repeated_kills() {
    let this = Move::with_spends(SPENDS);
    let before = Move::accounts(&this.from);
    let killed = (0..8_u64).filter(|n| this.copy_for(Duration::from_millis(30 + n * 97 % 210))).count();
    assert!(killed > 0, "all copies were done before they were killed");
    this.copy();
    assert_eq!(Move::accounts(&this.to), before);
    assert_eq!(before[2]["workspaces"][1]["spent"]["rows"], SPENDS - 1);
    assert_eq!(
        before[4].as_array().unwrap().len(),
        2,
        "a grant, and the spend after those of the other workspace"
    );
    // The second copy finds the mark of one that was killed after its commit.
    let mark = this.from.data().join("accounts.moved");
    let text = std::fs::read_to_string(&mark).unwrap();
    for text in [text.as_str(), text.strip_suffix("complete").unwrap()] {
        std::fs::write(&mark, text).unwrap();
        assert!(this.copy().contains("was already copied to"), "{text}");
        assert_eq!(Move::accounts(&this.to), before);
        let error = this.from.err(&["credits", "grant", "demo", "1"]);
        assert!(error.contains("were moved to postgres://"), "{text}: {error}");
    }
}

#[test]
fn sums_of_removed_spends_are_copied() {
    let this = Move::with_spends(100);
    let usage = |side: &Enrich| side.ok(&["usage", "demo", "--from", "2023-10-15", "--json"]);
    let sums = |side: &Enrich| (side.credits("demo"), usage(side));
    let all = sums(&this.from);
    let server = this.from.serve_with(&this.from.file("keep.toml", "credits.keep_spends_days = 400"));
    server.wait_for_log("removed old spends removed=100", 1);
    server.stop();
    assert_eq!(sums(&this.from), all, "balances and usage stay exact");
    let before = (Move::accounts(&this.from), usage(&this.from));
    assert_eq!(before.1.matches("\"lookups\":").count(), 1, "of one day: {}", before.1);
    assert!(before.1.contains("\"lookups\":99"), "{}", before.1);
    let data = this.data();
    let copy = || this.from.json(&[&this.args(&data)[..], &["--json"]].concat());
    let copied = json!({"copied": true, "workspaces": 2, "keys": 2, "users": 0, "opt_outs": 0, "rows": 5});
    assert_eq!(copy(), copied);
    assert_eq!(copy(), json!({"copied": false}));
    assert_eq!((Move::accounts(&this.to), usage(&this.to)), before);
}

#[test]
fn keys_work_in_the_database_and_the_directory_is_closed() {
    let this = Move::with_spends(100);
    assert!(this.copy().ends_with("both sides reconcile"));
    let server = this.to.serve(&["ENRICH_CREDITS_KEEP_SPENDS_DAYS=400"]);
    server.wait_for_log("removed old spends removed=100", 1);
    assert_eq!(server.connect().enrich(&this.key, "ada@gmail.com").unwrap().status, 404);
    let backup = this.from.path("backup").display().to_string();
    this.from.ok(&["backup", &backup]);
    let places = [this.from.data().display().to_string(), backup];
    let changes = [
        &["serve", "--listen", "192.0.2.1:1", "ENRICH_PLAINTEXT=true"][..], // unassigned, so it cannot serve by mistake
        &["credits", "grant", "demo", "1"],
        &["key", "create", "demo", "late"],
        &["key", "revoke", "key_00000000"],
        &["workspace", "create", "late"],
        &["people", "opt-out", "late@gmail.com"],
        &["people", "opt-out", "--withdraw", "late@gmail.com"],
        &["people", "opt-out", "--show", "late@gmail.com"],
        &["people", "import", "people.csv"],
    ];
    this.from.file("people.csv", "email,linkedin_url\nlate@gmail.com,linkedin.com/in/late\n");
    for (place, args) in places.iter().flat_map(|place| changes.map(|args| (place, args))) {
        let args = [args, &["--data", place]].concat();
        let error = this.from.err(&args);
        let named = ["were moved to postgres://", "with --database URL"].map(|part| error.contains(part));
        assert_eq!(named, [true; 2], "{args:?}: {error}");
    }
    let read = this.from.run(&["workspace", "list"]);
    assert!(read.success && read.stderr.contains("were moved to postgres://"), "{}", read.stderr);
}

/// Rows are compared by the copy itself, except for the numbers of workspaces and users. A new table is either
/// copied, and filled here, or listed here.
#[test]
fn every_table_is_copied_except_sessions_links_and_the_state_of_the_writer() {
    // Each of the larger tables has more rows than one statement.
    let this = Move::with_spends(3_000);
    this.to.ok(&["workspace", "create", "elsewhere"]);
    let user = |email, workspaces| {
        format!(
            "INSERT INTO member (workspace, email, role, password_hash, created_at)
             SELECT rowid, '{email}', 'admin', '$', 1 FROM workspace {workspaces};"
        )
    };
    // The numbers of users in the directory are those of others in the database.
    this.sql(
        &["ada@example.com", "bob@example.com", "eve@example.com"].map(|email| user(email, "")).concat(),
    );
    let db = this.directory();
    let demo = "WHERE id = 'demo'";
    let users = user("ada@example.com", "") + &user("bob@example.com", demo);
    db.execute_batch(&format!(
        "{users} INSERT INTO member_recovery_code
         SELECT member.rowid, randomblob(32) FROM member JOIN credit_spend WHERE email LIKE 'bob%';
         INSERT INTO credit_receipt SELECT workspace, randomblob(16), lookup_id, at FROM credit_spend
         WHERE lookup_id > (SELECT min(lookup_id) FROM credit_spend);
         INSERT INTO removed_spends SELECT rowid, 1, 0, 0 FROM workspace {demo};"
    ))
    .unwrap();
    this.copy();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN (
             'member_session', 'member_link', 'removed_until', 'failed_commits',
             'sqlite_sequence'
         )";
    let mut tables = db.prepare(tables).unwrap();
    for table in tables.query_map([], |row| row.get(0)).unwrap().map(Result::<String, _>::unwrap) {
        let rows = match table.as_str() {
            "workspace" => "workspace w".to_owned(),
            "member_recovery_code" => "member_recovery_code JOIN member m ON m.rowid = member \
                                       JOIN workspace w ON w.rowid = m.workspace"
                .to_owned(),
            _ => format!("{table} JOIN workspace w ON w.rowid = workspace"),
        };
        let select = |workspace| format!("SELECT count(*) FROM {rows} WHERE w.id = '{workspace}'");
        let counts = ["demo", "bolt"].map(select);
        let copied = counts.each_ref().map(|select| this.numbers(select)[0]);
        assert_eq!(
            copied,
            counts.map(|select| db.query_row(&select, [], |row| row.get::<_, i64>(0)).unwrap()),
            "{table}"
        );
        let may_be_equal = ["usage_day", "workspace"].contains(&&*table);
        assert!(copied[0] > copied[1] || may_be_equal, "{table}: {copied:?}");
    }
}

/// Each person has another sequence of three opt-outs and withdrawals in the directory and the database.
#[test]
fn opt_outs_are_copied() {
    const PEOPLE: usize = 64;
    let this = Move::with_spends(1);
    // Creates the people.
    this.from.ok(&[&format!("{}={}", PEOPLE_KEY.0, PEOPLE_KEY.1), "people", "opt-out", "--withdraw", EMAIL]);
    let opt_out =
        |side: &Enrich, args: &[&str]| side.json(&[&["people", "opt-out", "--json"], args].concat());
    this.from.import_ada();
    opt_out(&this.from, &[EMAIL]);
    let since = opt_out(&this.from, &["--show", EMAIL]);

    this.to.import_ada();
    let change_key =
        "UPDATE people_key SET fingerprint = set_byte(fingerprint, 0, get_byte(fingerprint, 0) # 1)";
    this.sql(change_key);
    let error = this.refused();
    assert!(error.contains("were made under another `people.key`"), "{error}");
    this.from.serve(&[]).stop(); // as before
    let rows = "SELECT (SELECT count(*) FROM opt_out), (SELECT count(*) FROM person)";
    assert_eq!(this.numbers(rows), [0, 1]);
    this.sql(change_key);
    let (mut import, _rows) = people::stdin::begin(&this.to, 1);
    assert!(this.refused().contains("an import of people into the database is running"));
    import.kill().and_then(|()| import.wait()).unwrap();

    let emails: [_; PEOPLE] = std::array::from_fn(|n| format!("p{n}@gmail.com"));
    // For each person and store: the step of the last change, and whether the person is opted out.
    let mut changes = [[(0, false); 2]; PEOPLE];
    for step in 0..12 {
        let (round, side, withdraws) = (step / 4, step / 2 % 2, step % 2 == 1);
        let people: Vec<_> = (0..PEOPLE).filter(|n| n >> (2 * round) & 3 == step % 4).collect();
        let args = ["--withdraw"].into_iter().filter(|_| withdraws);
        let args: Vec<_> = args.chain(people.iter().map(|n| emails[*n].as_str())).collect();
        opt_out([&this.from, &this.to][side], &args);
        for n in people {
            let last = &mut changes[n][side];
            *last = if last.1 == withdraws { (step, !withdraws) } else { *last };
        }
    }

    for last in [&["late@gmail.com"][..], &["--withdraw", "late@gmail.com"]] {
        opt_out(&this.from, last);
    }
    let late = Connection::open(this.from.data().join("people.db")).unwrap();
    // More than one statement copies.
    let others = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 10000)
         INSERT INTO opt_out (email_hash, is_withdrawn, at) SELECT unhex(printf('ff%030x', n)), 0, 1 FROM n";
    late.execute_batch(others).unwrap();
    let change = "UPDATE opt_out SET is_withdrawn = 0 WHERE at = (SELECT max(at) FROM opt_out)";
    late.execute_batch(&format!("BEGIN IMMEDIATE; {change}")).unwrap();
    let copied = 10_002 + changes.iter().filter(|[(_, is_out), _]| *is_out).count();
    let report = std::thread::scope(|scope| {
        let copying = scope.spawn(|| this.copy());
        eventually("the mark", || this.from.data().join("accounts.moved").exists().then_some(()));
        late.execute_batch("COMMIT").unwrap();
        copying.join().unwrap()
    });
    assert!(report.replace(',', "").contains(&format!(" {copied} opt-outs ")), "{report}");
    assert_eq!(this.numbers("SELECT count(*) FROM person"), [0]);
    assert_eq!(opt_out(&this.to, &["--show", EMAIL]), since);
    let args: Vec<_> = ["--show"].into_iter().chain(emails.iter().map(String::as_str)).collect();
    let shown = opt_out(&this.to, &args);
    for (n, [(copied_at, is_copied), (at, is_out)]) in changes.into_iter().enumerate() {
        let expected = is_out || is_copied && copied_at >= at;
        assert_eq!(shown[n]["opted_out"], expected, "of {n:06b}, the later change applies");
    }
    assert!(this.copy().contains("was already copied to"));
}
