//! Requests whose right ends, or whose object or store is lost, while they are in progress. Such a request
//! changes nothing, like one that was sent after the change.

use std::sync::{Arc, Mutex};

use super::routes::{ROWS, Row};
use super::rows::Rows;
use super::world::{State, World, result};

/// When a state is reached.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After the head was received and the session was read, when the request is counted.
    Counted,
    /// After the request was counted, when the body is awaited.
    Body,
}

/// Sends a request that is refused in `late`, and reaches this state while it is in progress. Returns whether
/// it was reached, or what is wrong.
async fn send(base: &World, row: &Row, late: State, moment: Moment) -> Result<bool, String> {
    let (method, path) = row.route.split_once(' ').unwrap();
    let world = base.with(&row.states(&[])).await;
    let (dir, now) = (world.site.dir.clone(), world.site.now());
    let reached = Arc::new(Mutex::new(None));
    let change = {
        let reached = reached.clone();
        async move {
            let lock = late.change(&dir, now).await;
            *reached.lock().unwrap() = Some((Rows::read(&dir), lock));
        }
    };
    let page = match moment {
        Moment::Counted => {
            world.site.gate.run_at_next_count(change);
            world.send(method, path, row.form).await
        }
        Moment::Body => world.send_slowly(method, path, row.form, change).await,
    };
    let Some((before, _lock)) = reached.lock().unwrap().take() else { return Ok(false) };
    let (found, changed) = (result(&page), world.rows().since(&before, now));
    // A code that was right may be wrong now.
    let is_unchanged = ["", "not signed in user.attempt_failed ada"].contains(&changed.as_str());
    match ["go", "200"].contains(&found.as_str()) || !is_unchanged {
        true => Err(format!("{} after {late:?} at {moment:?}: {found}, {changed}", row.route)),
        false => Ok(true),
    }
}

/// Sends all requests that are refused in a state. `least` is the least number of those during which it is
/// reached.
async fn check(late: State, least: usize) {
    let base = World::new().await;
    let (mut reached, mut wrong) = (0, Vec::new());
    for row in ROWS {
        let is_done = ["go", "200"].contains(&row.result(State::Nominal));
        if !is_done
            || row.changes.is_empty()
            || row.changes.ends_with(": ")
            || row.result(late) == row.result(State::Nominal)
        {
            continue;
        }
        for moment in [Moment::Counted, Moment::Body] {
            match send(&base, row, late, moment).await {
                Ok(is_reached) => reached += usize::from(is_reached),
                Err(error) => wrong.push(error),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(reached >= least, "only {reached} requests were interrupted");
}

macro_rules! late_requests_are_refused {
    ($($name:ident $state:ident $least:literal)*) => {
        $(#[tokio::test(start_paused = true)]
        async fn $name() {
            check(State::$state, $least).await;
        })*
    };
}

late_requests_are_refused! {
    after_the_session_ended Ended 10
    after_a_reset Reset 10
    after_a_new_second_factor NewFactor 10
    after_the_removal_of_the_user Removed 10
    after_the_loss_of_the_role Demoted 4
    after_the_deletion_of_the_workspace Deleted 8
    after_the_loss_of_keys_members_and_links Gone 4
    after_a_lock_of_the_store Locked 20
}
