//! Several nodes on Redis and PostgreSQL: single faults and the exact replies. Every run also checks all invariants.

use std::time::Duration;

use enrich_lib::credit::Settlement;
use enrich_lib::window::Quota;
use enrich_sim::{
    Answer, Clock, Event, Fault, Http, Link, Peer, Plan, Port, Question, Run, Server, Story, Talk, Way, What,
    Wish, World, seeds,
};

const SEEDS: u64 = 5;

const START: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// The links between the first node and its servers.
const TO_REDIS: Link = Link { peer: Peer::Server(Server::Redis), node: 0 };
const TO_POSTGRES: Link = Link { peer: Peer::Server(Server::Postgres), node: 0 };

/// Runs two nodes, and a client that sends a request for a known person every second.
fn each(seconds: usize, plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        let calm = (0..seconds).fold(Plan::calm_on_servers(seed, 2), |plan, _| ask(plan, 0, 1));
        check(World::run(&plan(calm)).check());
    }
}

/// Adds a request by the first client for a person of its own, `seconds` after the previous one.
fn ask(mut plan: Plan, node: usize, seconds: u32) -> Plan {
    plan = plan.ask_of(node, Wish::Known, Http::One, 30 * SECOND);
    if let Some(ask) = plan.clients[0].last_mut() {
        ask.pause = seconds * SECOND;
    }
    plan
}

/// Returns the statuses of the clients' requests, without the prober's.
fn statuses(run: &Run) -> Vec<Option<u16>> {
    run.statuses()[..run.plan.clients.iter().map(Vec::len).sum()].to_vec()
}

/// Returns the time between request `n` and its reply.
fn took(run: &Run, n: usize) -> Duration {
    let at = |found: &dyn Fn(&Event) -> bool| {
        run.trace.iter().find(|entry| found(&entry.event)).map(|entry| entry.at)
    };
    let sent = at(&|event| matches!(event, Event::Sent(sent) if sent.number == n));
    let received = at(&|event| matches!(event, Event::Received(number, _) if *number == n));
    received.expect("it was answered") - sent.expect("it was sent")
}

fn is_executed(story: &Story) -> bool {
    story.asked(Question::Hold) || story.asked(Question::Person) || !story.deeds.is_empty()
}

/// Returns the number of 200s that the clients received, without the prober's.
fn found(run: &Run) -> u64 {
    statuses(run).iter().filter(|status| **status == Some(200)).count() as u64
}

#[test]
fn nothing_fails_and_every_node_serves() {
    each(
        3,
        |plan| ask(plan, 1, 1),
        |run| {
            assert_eq!(statuses(&run), [Some(200); 4]);
            assert_eq!((run.balance().spent, run.balance().available), (4, 6));
        },
    );
}

#[test]
fn redis_down_is_a_503_within_the_deadline_and_nothing_is_executed() {
    let fails = |what: What| {
        let plan = |plan: Plan| plan.trouble(500 * SECOND / 1_000, 3_500 * SECOND / 1_000, what.clone());
        each(5, plan, is_a_503_in_between);
    };
    fails(What::Outage(Server::Redis));
    fails(What::Partition(TO_REDIS));
    fails(What::OneWay(TO_REDIS, Way::ToNode));
    fails(What::OneWay(TO_REDIS, Way::FromNode));
    fails(What::Slow(TO_REDIS, 400 * SECOND / 1_000));
}

/// Checks that the fault affected the first request and that every affected request quickly received a 503, without a hold
/// or a vendor request.
fn is_a_503_in_between(run: Run) {
    let statuses = statuses(&run);
    assert_eq!(statuses[0], Some(503), "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, Some(200 | 503))), "{statuses:?}");
    for (n, _) in statuses.iter().enumerate().filter(|(_, status)| **status == Some(503)) {
        // The deadline of a count, plus the latency of the request and the reply.
        assert!(took(&run, n) < 700 * SECOND / 1_000, "{:?}", took(&run, n));
    }
    let refused = run.stories().into_iter().filter(|story| story.ends == [503]);
    assert!(refused.into_iter().all(|story| !is_executed(&story)));
    assert_eq!(run.balance().spent, found(&run));
}

#[test]
fn a_redis_that_comes_back_with_nothing_admits_one_limit_more() {
    let plan = |plan: Plan| {
        let plan = Plan { quota: Quota::new(2, 86_400).unwrap(), ..plan };
        plan.trouble(3_500 * SECOND / 1_000, 4_500 * SECOND / 1_000, What::Outage(Server::Redis))
    };
    each(12, plan, |run| {
        let statuses = statuses(&run);
        assert_eq!(found(&run), 4, "{statuses:?}");
        assert!(statuses.contains(&Some(429)), "{statuses:?}");
    });
}

#[test]
fn postgres_down_before_the_hold_is_a_500_and_nothing_is_executed() {
    let fails = |what: What| {
        // Starts after the first two requests have finished, and more than one second before the last request, which
        // therefore cannot use a cached key.
        let plan = |plan: Plan| ask(plan, 0, 5).trouble(5_500 * SECOND / 1_000, 17 * SECOND, what.clone());
        each(2, plan, |run| {
            let (statuses, stories) = (statuses(&run), run.stories());
            assert_eq!(statuses.last(), Some(&Some(500)), "{statuses:?}");
            let failed = stories.iter().filter(|story| story.ends == [500]);
            assert!(failed.into_iter().all(|story| !story.asked(Question::Person) && story.stands.is_none()));
            assert_eq!(run.balance().spent, found(&run));
        });
    };
    fails(What::Partition(TO_POSTGRES));
    fails(What::OneWay(TO_POSTGRES, Way::ToNode));
    fails(What::OneWay(TO_POSTGRES, Way::FromNode));
    fails(What::Outage(Server::Postgres));
}

#[test]
fn a_spend_that_postgres_does_not_hear_of_is_repeated_until_it_does() {
    let plan = |plan: Plan| {
        // The vendor takes at least two seconds, and PostgreSQL is unreachable when it responds.
        plan.trouble(START, 3 * SECOND, slow_vendor()).trouble(
            2 * SECOND,
            5_500 * SECOND / 1_000,
            What::Partition(TO_POSTGRES),
        )
    };
    each(1, plan, |run| {
        assert_eq!(statuses(&run), [Some(200)]);
        assert!(took(&run, 0) > 4 * SECOND, "it waits: {:?}", took(&run, 0));
        assert_eq!(run.balance().spent, 1);
    });
}

#[test]
fn a_spend_that_postgres_never_hears_of_is_a_500_and_is_not_charged() {
    for what in
        [What::Partition(TO_POSTGRES), What::OneWay(TO_POSTGRES, Way::ToNode), What::Outage(Server::Postgres)]
    {
        let plan = |plan: Plan| {
            plan.trouble(START, 3 * SECOND, slow_vendor()).trouble(2 * SECOND, 14 * SECOND, what.clone())
        };
        each(1, plan, |run| {
            assert_eq!(statuses(&run), [Some(500)]);
            let story = &run.stories()[0];
            assert!(story.asked(Question::Settle(Settlement::Spend(1))) && story.stands.is_none());
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        });
    }
}

fn slow_vendor() -> What {
    What::Port(0, Port::Resolver, Fault::Late(2 * SECOND), 1.0)
}

#[test]
fn a_node_that_crashes_gives_its_lease_back_when_that_is_over() {
    let hangs = What::Port(0, Port::Resolver, Fault::Hangs, 1.0);
    // The first node leases the only credit and crashes. The other node gets the credit when the lease has expired.
    let plan = |plan: Plan| {
        let plan =
            plan.trouble(START, 2 * SECOND, hangs.clone()).trouble(2 * SECOND, 20 * SECOND, What::Crash(0));
        let mut plan = ask(ask(Plan { credits: 1, ..plan }, 1, 1), 1, 6);
        plan.clients[0][0].patience = SECOND / 2;
        plan
    };
    each(1, plan, |run| {
        assert_eq!(statuses(&run)[0], None, "its node crashed");
        assert_eq!(statuses(&run).last(), Some(&Some(200)), "the credit is back");
        assert_eq!((run.balance().spent, run.balance().available), (1, 0));
    });
}

#[test]
fn a_node_whose_lease_ends_while_it_is_cut_off_holds_nothing_on_it() {
    let cut = What::Partition(TO_POSTGRES);
    // The first node leases 2 of 8 credits and spends one. It is cut off for longer than its lease lasts.
    let plan = |plan: Plan| {
        let plan = Plan { credits: 8, ..plan }.trouble(3 * SECOND, 12 * SECOND, cut.clone());
        (0..7).fold(ask(plan, 0, 3), |plan, _| ask(plan, 1, 1))
    };
    each(1, plan, |run| {
        let statuses = statuses(&run);
        assert_eq!(statuses[..2], [Some(200), Some(500)]);
        assert_eq!(statuses[2..], [Some(200); 7], "the other node has its credit");
        assert_eq!((run.balance().spent, run.balance().available), (8, 0));
    });
}

#[test]
fn the_last_credits_go_from_the_node_that_has_them_to_the_one_that_needs_them() {
    let plan = |plan: Plan| {
        let plan = Plan { credits: 3, ..plan };
        ask(ask(ask(plan, 0, 1), 1, 1), 0, 1)
    };
    each(1, plan, |run| {
        assert_eq!(statuses(&run), [Some(200), Some(200), Some(200), Some(402)]);
        assert_eq!((run.balance().spent, run.balance().available), (3, 0));
    });
}

#[test]
fn nodes_and_servers_whose_clocks_disagree_admit_no_more_than_a_window_has() {
    let clock = |ahead_ms| Clock { ahead_ms, ..Clock::default() };
    for (first, second, redis, postgres) in
        [(5_000, -5_000, 5_000, -5_000), (-5_000, 5_000, -5_000, 5_000), (0, 5_000, 5_000, 5_000)]
    {
        let plan = |plan: Plan| {
            let mut plan =
                Plan { quota: Quota::new(2, 3).unwrap(), clocks: vec![clock(first), clock(second)], ..plan };
            plan.servers.redis = clock(redis);
            plan.servers.postgres = clock(postgres);
            // The requests are refused for their bodies, so they follow each other quickly: 40 of them in about five
            // seconds.
            [0, 1]
                .repeat(20)
                .into_iter()
                .fold(plan, |plan, node| plan.ask_of(node, Wish::NoEmail, Http::One, 5 * SECOND))
        };
        each(0, plan, |run| {
            let statuses = statuses(&run);
            let admitted = statuses.iter().filter(|status| **status == Some(400)).count();
            assert!(admitted >= 4 && statuses.contains(&Some(429)), "{statuses:?}");
        });
    }
}

#[test]
fn a_key_that_is_revoked_is_served_nowhere_a_second_later() {
    let plan = |plan: Plan| ask(plan, 1, 2).trouble(2_500 * SECOND / 1_000, 3 * SECOND, What::Revoke);
    each(2, plan, |run| {
        let statuses = statuses(&run);
        assert_eq!(statuses[0], Some(200));
        assert_eq!(statuses.last(), Some(&Some(401)), "{statuses:?}");
    });
}

#[test]
fn a_node_that_is_cut_off_from_postgres_trusts_no_key_a_second_later() {
    let plan = |plan: Plan| {
        let plan = plan.trouble(3 * SECOND, 12 * SECOND, What::Partition(TO_POSTGRES));
        ask(plan, 0, 3).trouble(3_500 * SECOND / 1_000, 4 * SECOND, What::Revoke)
    };
    each(1, plan, |run| {
        assert_eq!(statuses(&run).last(), Some(&Some(500)));
        let last = run.stories().into_iter().rfind(|story| story.node == 0 && story.ends == [500]).unwrap();
        assert_eq!(last.talk, [Talk::Asks(Question::Key), Talk::Told(Answer::Failed)]);
    });
}
