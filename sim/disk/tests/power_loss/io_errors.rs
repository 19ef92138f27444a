//! Reads of the disk fail after any number of successful ones. After the disk is repaired, the server has the state
//! of the disk again.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use enrich_disk::{Disk, SyncFault};
use enrich_lib::email::Email;
use enrich_lib::model::{ProfileUrl, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_sqlite::{DataDir, Ledger, People, Work, accounts, complete};
use enrich_store::{Accounts, Actor, Clocks, Ledger as _};
use tempfile::TempDir;

use crate::service::{START, StepResult, poll, run_writer};

/// More reads than any tick or refresh in these tests needs.
const READS: u32 = 40;

#[test]
fn opt_outs_take_effect_after_reads_failed() {
    for reads in 0..READS {
        let machine = Machine::new();
        let people = People::open(&machine.dir, 0.8, [7; 16]).unwrap();
        let emails = ["ada.marlowe@gmail.com", "bea@gmail.com"].map(|email| Email::parse(email).unwrap());
        let mut import = people.import().unwrap();
        for email in &emails {
            import.add(email, &ProfileUrl::from_name("ada").unwrap(), 0.9).unwrap();
        }
        import.finish().unwrap();
        people.refresh().unwrap();

        machine.disk.fail_reads_after(reads);
        let failed = emails.iter().any(|email| people.get(email).is_err());
        let refreshed = people.refresh();
        assert_eq!(refreshed.is_err(), people.check().is_err());
        machine.disk.repair_reads();
        assert!(reads < READS - 1 || !failed && refreshed.is_ok(), "more than {reads} reads");

        people.opt_out(&emails, START).unwrap();
        people.refresh().unwrap();
        people.check().unwrap();
        for email in &emails {
            assert_eq!(people.get(email).unwrap(), None, "failed: {failed}, after {reads} reads");
        }
    }
}

#[test]
fn grants_and_withdrawals_are_applied_after_reads_failed() {
    for reads in 0..READS {
        let machine = Machine::new();
        let (demo, mut admin, mut server) = machine.serve_demo();

        let four = (-4).try_into().unwrap();
        complete(admin.adjust(&demo, four, "typo", &Actor::operator(START))).unwrap();
        let withdrawn = server.tick_while_reads_fail(&machine.disk, reads);
        server.tick().unwrap();
        assert_eq!(server.available(&demo), 6, "withdrawn, after {reads} reads");

        complete(admin.grant(&demo, 5, START)).unwrap();
        let granted = server.tick_while_reads_fail(&machine.disk, reads);
        server.tick().unwrap();
        assert_eq!(server.available(&demo), 11, "granted, after {reads} reads");
        assert_eq!(complete(admin.balance(&demo)).unwrap().granted, 11);
        assert!(complete(admin.audit()).unwrap().reconciles());
        assert!(reads < READS - 1 || withdrawn.and(granted).is_ok(), "more than {reads} reads");
    }
}

/// A data directory on a simulated disk.
struct Machine {
    // Field order matters: the disk is unmounted before its directory is deleted.
    disk: Disk,
    dir: DataDir,
    _tmp: TempDir,
}

impl Machine {
    fn new() -> Self {
        let tmp = TempDir::new().unwrap();
        let dir = DataDir::create(tmp.path().join("data")).unwrap();
        let disk = Disk::mount(dir.path(), 512, SyncFault::None, 1);
        Self { disk, dir, _tmp: tmp }
    }

    /// Creates the workspace `demo` with 10 credits, and starts a server that has its account in memory.
    fn serve_demo(&self) -> (WorkspaceId, Accounts, Server) {
        let demo: WorkspaceId = "demo".parse().unwrap();
        let mut admin = accounts(&self.dir).unwrap();
        complete(admin.create_workspace(&demo, Quota::default(), 10, START)).unwrap();
        let server = Server::start(&self.dir);
        assert_eq!(server.available(&demo), 10);
        (demo, admin, server)
    }
}

/// A ledger whose writer runs only during a tick.
struct Server {
    ledger: Ledger,
    writer: Work,
}

impl Server {
    fn start(dir: &DataDir) -> Self {
        let mut writer = None;
        let ledger =
            Ledger::open(dir, Clocks::simulated(START), || Duration::ZERO, |work| writer = Some(work))
                .unwrap();
        Self { ledger, writer: writer.unwrap() }
    }

    fn tick(&mut self) -> StepResult {
        let refreshed = self.ledger.refresh_keys();
        let mut tick = pin!(self.ledger.tick(Clocks::simulated(START)));
        assert!(poll(tick.as_mut()).is_pending());
        run_writer(&mut self.writer).unwrap();
        match poll(tick) {
            Poll::Ready(ticked) => Ok(ticked.map(|()| refreshed)??),
            Poll::Pending => panic!("the tick is still pending after the writer ran"),
        }
    }

    /// Ticks twice on a disk whose reads fail after the first `reads`.
    fn tick_while_reads_fail(&mut self, disk: &Disk, reads: u32) -> StepResult {
        disk.fail_reads_after(reads);
        // The second tick also runs after an error.
        let [first, second] = [(); 2].map(|()| self.tick());
        disk.repair_reads();
        first.and(second)
    }

    fn available(&self, workspace: &WorkspaceId) -> u64 {
        self.ledger.balance(workspace).unwrap().available
    }
}
