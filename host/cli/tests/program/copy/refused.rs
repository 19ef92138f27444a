//! Copies that are refused or fail, and what they leave.

use super::*;

#[test]
fn refuses_a_directory_in_use_and_a_database_that_is_not_migrated() {
    let this = Move::with_spends(1);
    let server = this.from.serve(&[]);
    assert!(this.refused().contains("is already being served"));
    server.stop();
    let set_version = |by| {
        let db = this.directory();
        let version = db.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).unwrap();
        db.pragma_update(None, "user_version", version + by).unwrap();
    };
    set_version(1);
    assert!(this.refused().contains("accounts.db"));
    set_version(-1);
    this.sql("DELETE FROM migration");
    assert!(this.refused().contains("run `enrich migrate`"));
    this.from.serve(&[]).stop(); // as before
}

#[test]
fn refuses_a_workspace_that_exists_in_the_database() {
    let this = Move::with_spends(10);
    this.to.ok(&["workspace", "create", "BOLT", "--credits", "1"]);
    this.from.ok(&["people", "opt-out", "ada@gmail.com"]);
    let error = this.refused();
    for expected in
        ["there is already a workspace BOLT; nothing was copied", "; a deleted workspace keeps its name"]
    {
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(this.to.json(&["workspace", "list", "--json"]).as_array().unwrap().len(), 1);
    let rows = "SELECT (SELECT count(*) FROM opt_out), (SELECT count(*) FROM people_key)";
    assert_eq!(this.numbers(rows), [0, 0]);
    this.from.serve(&[]).stop(); // as before
    this.from.ok(&["people", "opt-out", "--withdraw", "ada@gmail.com"]);
}

#[test]
fn refuses_a_second_database() {
    let this = Move::with_spends(10);
    this.copy();
    let elsewhere = block_on(Postgres::shared().create_database());
    for elsewhere in [Postgres::shared().url(&elsewhere), format!("{}?dbname={elsewhere}", this.url)] {
        let error = this.from.err(&["copy", "--from", &this.data(), "--to", &elsewhere]);
        assert!(error.contains("were moved to postgres://"), "{error}");
    }
    // As in another database of the same name.
    this.sql("DELETE FROM copied_store");
    assert!(this.refused().contains("the accounts were copied before, but not to this database"));
    let error = this.from.err(&["credits", "grant", "demo", "1"]);
    assert!(error.contains("were moved to postgres://"), "{error}");
}

#[test]
fn copies_nothing_unless_both_sides_match() {
    let this = Move::with_spends(10);
    let at_insert = "TRIGGER changes BEFORE INSERT ON credit_spend";
    let at_commit = "CONSTRAINT TRIGGER changes AFTER INSERT ON credit_spend DEFERRABLE INITIALLY DEFERRED";
    let trigger = |trigger: &str, body: &str| {
        this.sql(&format!(
            "CREATE FUNCTION changes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; END $$;
             CREATE {trigger} FOR EACH ROW EXECUTE FUNCTION changes()"
        ));
        let error = this.refused();
        assert_eq!(this.to.json(&["workspace", "list", "--json"]), json!([]));
        assert_eq!(this.numbers("SELECT count(*) FROM opt_out"), [0]);
        this.sql("DROP FUNCTION changes CASCADE");
        error
    };
    this.from.ok(&["people", "opt-out", "ada@gmail.com"]);
    // The credits of the workspace stay the same.
    for body in ["RETURN NULL", "NEW.at = NEW.at + 1; RETURN NEW"] {
        let error = trigger(at_insert, body);
        assert!(error.contains("the copy of table credit_spend differs"), "{error}");
    }
    // Rows that change after their table was compared.
    let later = "TRIGGER changes AFTER INSERT ON audit_event";
    for (change, difference) in [
        ("UPDATE workspace SET granted = granted + 1", "the copy of workspace bolt differs"),
        ("UPDATE usage_day SET credits = credits + 1", "but its spends are"),
    ] {
        let error = trigger(later, &format!("{change}; RETURN NULL"));
        assert!(error.contains(difference), "{error}");
    }
    let fails = "RAISE EXCEPTION 'no'";
    assert!(!trigger(at_insert, fails).contains("run the same command again"));
    this.from.serve(&[]).stop(); // as before
    // After a commit of unknown result, a copy that fails earlier does not end the uncertainty.
    for when in [at_commit, at_insert] {
        assert!(trigger(when, fails).contains("run the same command again"));
    }
    let error = this.from.err(&["credits", "grant", "demo", "1"]);
    assert!(error.contains("are being moved to postgres://"), "{error}");
    assert!(error.contains("run `enrich copy` again"), "{error}");
    this.copy();
}

#[test]
fn refuses_balances_that_do_not_reconcile() {
    let this = Move::with_spends(10);
    this.directory().execute_batch("UPDATE workspace SET granted = granted + 1 WHERE id = 'demo'").unwrap();
    let error = this.refused();
    assert!(error.contains("do not reconcile") && error.contains("nothing was copied"), "{error}");
    this.from.ok(&["credits", "grant", "demo", "1"]); // as before
}
