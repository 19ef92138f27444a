//! The changes of operators in the fake PostgreSQL, which does not execute the SQL of their commands.

use enrich_fakes::postgres::{Database, Person};
use enrich_lib::email::Email;
use enrich_lib::model::LookupId;

use crate::keys::KeyOf;
use crate::operator::Operation;
use crate::servers::hasher;
use crate::workspaces::client_workspace;

/// The effects of a change on credits.
#[derive(Default)]
pub(crate) struct Effect {
    /// The credits that the workspace received. A negative number was withdrawn.
    pub(crate) granted: i64,
    /// The lookup whose spend was refunded.
    pub(crate) refunded: Option<LookupId>,
}

/// Makes a change at the time `now`, in milliseconds. Returns `None` if it has no effect.
pub(crate) fn operate(database: &mut Database, operation: &Operation, now: i64) -> Option<Effect> {
    let name = client_workspace();
    let rowid = database.workspace_rowid(name.as_str())?;
    let digest = |of: KeyOf| *of.api_key().digest().as_bytes();
    let has_key = |database: &Database, of| database.has_key(&digest(of), now);
    let email = |email: &str| Email::parse(email).ok();
    let mut effect = Effect::default();
    match operation {
        Operation::Grant(credits) => effect.granted = credits.cast_signed(),
        Operation::Withdraw(credits) => {
            effect.granted = -credits.cast_signed();
            let available = database.workspaces()[rowid as usize - 1].available();
            (available + effect.granted >= 0).then_some(())?;
        }
        Operation::Refund => {
            let (lookup, credits) = database.refund_first(name.as_str())?;
            return Some(Effect { granted: credits, refunded: Some(LookupId::from_bytes(lookup)) });
        }
        Operation::SetLimit(limit) => {
            database.change_workspace(rowid, |workspace| workspace.quota_limit = i64::from(*limit));
        }
        Operation::SetSuspended(is_suspended) => {
            database.change_workspace(rowid, |workspace| workspace.is_suspended = *is_suspended);
        }
        Operation::CreateKey(of) => {
            (!database.is_stored(&digest(*of))).then_some(())?;
            database.create_key(rowid, &digest(*of), of.is_test());
        }
        Operation::SetKeyEnabled(of, is_enabled) => {
            has_key(database, *of).then_some(())?;
            database.set_key_enabled(&digest(*of), *is_enabled);
        }
        Operation::RotateKey(of, grace) => {
            let new = of.replacement();
            (has_key(database, *of) && !database.is_stored(&digest(new))).then_some(())?;
            database.end_key(&digest(*of), now + grace.as_millis() as i64);
            database.create_key(rowid, &digest(new), new.is_test());
        }
        Operation::RevokeKey(of) => {
            database.is_stored(&digest(*of)).then_some(())?;
            database.revoke_key(&digest(*of));
        }
        Operation::SetOptedOut(text, is_opted_out) => {
            let email = email(text)?;
            if *is_opted_out {
                database.opt_out(hasher().opt_out_hash(&email));
                database.delete_person(&hasher().hash(&email));
            } else {
                database.withdraw_opt_out(&hasher().opt_out_hash(&email));
            }
        }
        Operation::Import { email: text, profile, replaces: false } => {
            let email = email(text)?;
            if !database.has_opted_out(&hasher().opt_out_hash(&email)) {
                let person = Person { confidence: 1.0, profile: profile.clone() };
                database.add_person(hasher().hash(&email), person);
            }
        }
        // The fake PostgreSQL deletes no person, workspace or spend: the vendor may not know the person.
        Operation::Import { .. } | Operation::Delete | Operation::RemoveSpends => return None,
    }
    database.grant(rowid, effect.granted);
    Some(effect)
}
