//! Lists with several pages.

use enrich_store::users::Role;

use super::site::{Browser, SHOP, Site, id};

const BOSS: &str = "boss@example.com";

/// Follows the links `older` from the first page of a list. Returns the texts after `cell` on each page.
async fn pages_of(browser: &Browser, path: &str, cell: &str, [newer, older]: [&str; 2]) -> Vec<Vec<String>> {
    let (mut pages, mut next) = (Vec::new(), Some(path.to_owned()));
    while let Some(path) = next {
        let page = browser.get(&path).await;
        assert_eq!(page.has(&format!(">{newer}</a>")), !pages.is_empty(), "{path} leads back");
        let texts = page.body.split(cell).skip(1).map(|text| text.split('<').next().unwrap().trim());
        pages.push(texts.map(str::to_owned).collect());
        let link = page.body.split_once(&format!("\">{older}</a>"));
        next = link.map(|(before, _)| before.rsplit_once('"').unwrap().1.to_owned());
    }
    pages
}

#[tokio::test]
async fn each_row_is_on_one_of_the_pages_of_50_rows() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let mut members = vec![BOSS.to_owned()];
    for n in 0..55 {
        members.push(format!("user{n:02}@example.com"));
        site.join(SHOP, members.last().unwrap(), Role::Member).await;
    }
    site.invite(SHOP, "new@example.com", Role::Member).await;
    let (mut keys, mut events) = (Vec::new(), Vec::new());
    while keys.len() < 55 || events.len() % 50 != 0 {
        keys.insert(0, format!("key number {}", keys.len()));
        site.create_key(SHOP, &keys[0]).await;
        let log = site.admin().await.audit_log(&id(SHOP), None, 1_000).await.unwrap();
        events = log.into_iter().map(|event| event.subject).collect();
    }
    let (name, subject) = ("<th scope=\"row\">", "<td class=\"long\" data-label=\"Subject\">");
    for (path, cell, links, rows) in [
        ("/w/shop/keys", name, ["Previous", "Next"], &keys),
        ("/w/shop/members", name, ["Previous", "Next"], &members),
        ("/w/shop/audit-log", subject, ["Newest", "Older"], &events),
    ] {
        let mut expected: Vec<_> = rows.chunks(50).map(<[_]>::to_vec).collect();
        if path.ends_with("/members") {
            expected[0].push("new@example.com".to_owned()); // the open invitations are on the first page
        }
        assert_eq!(pages_of(&boss, path, cell, links).await, expected, "{path}");
    }
    assert_eq!(boss.get("/w/shop/keys?page=99999999").await.status, 200);
    for path in ["keys?page=-1", "members?page=x", "usage?days=abc", "audit-log?before=x"] {
        assert_eq!(boss.get(&format!("/w/shop/{path}")).await.status, 404, "{path}");
    }
    // A change leads back to the page of its row.
    for (path, action, done) in [("keys", "disable", "key-disabled"), ("members", "role", "role-changed")] {
        let list = boss.get(&format!("/w/shop/{path}?page=1")).await;
        let form = format!("/{action}?page=1");
        let (before, _) = list.body.split_once(&format!("{form}\"")).unwrap();
        let form = format!("{}{form}", before.rsplit_once('"').unwrap().1);
        let changed = boss.post(&form, &[("role", "admin")]).await;
        assert_eq!(changed.location(), format!("/w/shop/{path}?page=1&done={done}"));
    }
}
