//! The part of the model that concerns users, links and sessions.

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::TokenDigest;
use enrich_store::users::{Link, LinkPurpose, Renewal, Role, Session, Totp, User, UserId};

use super::model::{Answer, Model, refuse};
use super::steps::By;

impl Model {
    pub(super) fn user(&self, id: UserId) -> Option<&User> {
        self.users.iter().find(|user| user.id == id)
    }

    fn get_user(&mut self, id: UserId) -> &mut User {
        self.users.iter_mut().find(|user| user.id == id).unwrap()
    }

    /// Returns the workspace and the email of a user, unless the author may not change them.
    fn member(&self, id: UserId, by: &By) -> Answer<(WorkspaceId, String)> {
        let user = self.user(id).ok_or(["UnknownUser".to_owned()])?;
        refuse(&[(self.forbids(&user.workspace, by), "NotAllowed")])?;
        Ok((user.workspace.clone(), user.email.as_str().to_owned()))
    }

    /// Returns whether the author has one of these sessions.
    fn is_own(&self, by: &By, mut is_one: impl FnMut(&Session) -> bool) -> bool {
        let own = by.session.map(|(digest, _)| digest);
        self.sessions.iter().any(|session| Some(session.digest) == own && is_one(session))
    }

    pub(super) fn create_link(&mut self, link: Link, by: &By) -> Answer<()> {
        let (workspace, email, is_reset) = (&link.workspace, &link.email, link.purpose == LinkPurpose::Reset);
        self.check_live(workspace)?;
        let user = self.users.iter().find(|user| user.workspace == *workspace && user.email == *email);
        let user = user.map(|user| user.id);
        let ends_own = self.is_own(by, |session| Some(session.user) == user);
        refuse(&[
            (!is_reset && user.is_some(), "AlreadyMember"),
            (is_reset && user.is_none(), "UnknownUser"),
            (self.forbids(workspace, by) || ends_own, "NotAllowed"),
        ])?;
        let now = self.now;
        let stays = |other: &Link| other.email != *email && other.expires_at > now;
        self.links.retain(|other| other.workspace != *workspace || stays(other));
        self.links.push(link.clone());
        match link.purpose {
            LinkPurpose::Join(role) => {
                self.record(
                    workspace,
                    "member.invited",
                    format!("{} ({})", email.as_str(), role.as_str()),
                    by,
                );
            }
            LinkPurpose::Reset => self.record(workspace, "user.reset", email.as_str(), by),
        }
        if let Some(user) = user {
            self.get_user(user).password_hash = format!("reset {}", hex::encode(link.digest.as_bytes()));
            self.end_invitations(workspace, email.as_str(), by);
            self.end_sessions(user, |_| true, by)?;
        }
        Ok(())
    }

    /// Deletes the open invitations that a user created.
    fn end_invitations(&mut self, workspace: &WorkspaceId, user: &str, by: &By) {
        let is_ended = |link: &mut Link| {
            link.workspace == *workspace && link.created_by == user && link.purpose != LinkPurpose::Reset
        };
        for link in self.links.extract_if(.., is_ended).collect::<Vec<_>>() {
            self.record(workspace, "member.invitation_revoked", link.email.as_str(), by);
        }
    }

    pub(super) fn delete_invitation(
        &mut self,
        id: &WorkspaceId,
        digest: TokenDigest,
        by: &By,
    ) -> Answer<bool> {
        refuse(&[(self.workspace(id).is_none(), "UnknownWorkspace")])?;
        let is_it = |link: &Link| {
            link.workspace == *id && link.digest == digest && link.purpose != LinkPurpose::Reset
        };
        let Some(at) = self.links.iter().position(is_it) else { return Ok(false) };
        refuse(&[(self.forbids(id, by), "NotAllowed")])?;
        let email = self.links.remove(at).email;
        self.record(id, "member.invitation_revoked", email.as_str(), by);
        Ok(true)
    }

    /// Uses a link. `new` is the number that the store gave a new user.
    pub(super) fn use_link(
        &mut self,
        digest: TokenDigest,
        hash: &str,
        new: Option<UserId>,
        by: &By,
    ) -> Answer<Option<UserId>> {
        let is_it = |link: &Link| link.digest == digest && link.expires_at > self.now;
        let Some(at) = self.links.iter().position(is_it) else { return Ok(None) };
        refuse(&[(self.is_deleted(&self.links[at].workspace), "WorkspaceDeleted")])?;
        let Link { workspace, email, purpose, .. } = self.links.remove(at);
        let by = By { name: email.as_str().to_owned(), ..by.clone() };
        let LinkPurpose::Join(role) = purpose else {
            let is_it = |user: &&mut User| user.workspace == workspace && user.email == email;
            let user = self.users.iter_mut().find(is_it).unwrap();
            hash.clone_into(&mut user.password_hash);
            let (id, had_totp) = (user.id, user.totp.is_some());
            self.replace_totp(id, None, &[]);
            if had_totp {
                self.record(&workspace, "user.totp_disabled", &by.name, &by);
            }
            self.end_invitations(&workspace, &by.name, &by);
            self.sessions.retain(|session| session.user != id);
            self.record(&workspace, "user.password_changed", &by.name, &by);
            return Ok(Some(id));
        };
        self.users.push(User {
            id: new.unwrap_or(UserId(-1)),
            workspace: workspace.clone(),
            email,
            role,
            password_hash: hash.to_owned(),
            totp: None,
            recovery_codes: 0,
            created_at: self.now,
            last_seen_at: None,
        });
        self.record(&workspace, "member.joined", format!("{} ({})", by.name, role.as_str()), &by);
        Ok(self.users.last().map(|user| user.id))
    }

    /// Refuses a change of a user of another workspace, or without a right. In a deleted workspace, only the
    /// operator has it.
    fn check_user(&self, id: &WorkspaceId, user: UserId, by: &By) -> Answer<()> {
        refuse(&[
            (self.workspace(id).is_none(), "UnknownWorkspace"),
            (self.is_deleted(id) && by.name != "operator", "WorkspaceDeleted"),
            (self.user(user).is_none_or(|user| user.workspace != *id), "UnknownUser"),
            (self.forbids(id, by), "NotAllowed"),
        ])
    }

    fn has_other_admin(&self, id: &WorkspaceId, user: UserId) -> bool {
        let is_admin = |other: &User| other.workspace == *id && other.role == Role::Admin;
        self.users.iter().any(|other| is_admin(other) && other.id != user)
    }

    pub(super) fn set_role(&mut self, id: &WorkspaceId, user: UserId, role: Role, by: &By) -> Answer<()> {
        self.check_user(id, user, by)?;
        if self.user(user).is_some_and(|user| user.role == role) {
            return Ok(());
        }
        refuse(&[(role == Role::Member && !self.has_other_admin(id, user), "LastAdmin")])?;
        let user = self.get_user(user);
        user.role = role;
        let email = user.email.as_str().to_owned();
        self.record(id, "member.role_changed", format!("{email} ({})", role.as_str()), by);
        self.end_invitations(id, &email, by);
        Ok(())
    }

    pub(super) fn remove_user(&mut self, id: &WorkspaceId, user: UserId, by: &By) -> Answer<()> {
        self.check_user(id, user, by)?;
        let User { role, email, .. } = self.get_user(user).clone();
        let is_last = role == Role::Admin && !self.has_other_admin(id, user);
        refuse(&[(is_last && by.name != "operator", "LastAdmin")])?;
        self.record(id, "member.removed", email.as_str(), by);
        self.end_invitations(id, email.as_str(), by);
        self.users.retain(|other| other.id != user);
        self.codes.retain(|(other, _)| *other != user);
        self.sessions.retain(|session| session.user != user);
        self.links.retain(|link| link.workspace != *id || link.email != email);
        Ok(())
    }

    /// Ends all sessions of a user but the renewed one.
    fn end_other_sessions(&mut self, user: UserId, renewal: Option<&Renewal>) {
        let kept = renewal.map(|renewal| renewal.old);
        self.sessions.retain(|session| session.user != user || Some(session.digest) == kept);
        renewal.inspect(|renewal| self.renew(renewal));
    }

    fn renew(&mut self, renewal: &Renewal) {
        let now = self.now;
        for session in self.sessions.iter_mut().filter(|session| session.digest == renewal.old) {
            (session.digest, session.authenticated_at) = (renewal.new, now);
            session.last_seen_at = session.last_seen_at.max(now);
        }
    }

    pub(super) fn set_password(
        &mut self,
        user: UserId,
        hash: &str,
        renewal: Option<&Renewal>,
        by: &By,
    ) -> Answer<()> {
        let (workspace, email) = self.member(user, by)?;
        hash.clone_into(&mut self.get_user(user).password_hash);
        self.links.retain(|link| link.workspace != workspace || link.email.as_str() != email);
        self.record(&workspace, "user.password_changed", &email, by);
        self.end_invitations(&workspace, &email, by);
        self.end_other_sessions(user, renewal);
        Ok(())
    }

    fn replace_totp(&mut self, user: UserId, totp: Option<Totp>, codes: &[TokenDigest]) {
        self.codes.retain(|(other, _)| *other != user);
        self.codes.extend(codes.iter().map(|code| (user, *code)));
        let user = self.get_user(user);
        (user.totp, user.recovery_codes) = (totp, codes.len() as u32);
    }

    pub(super) fn set_totp(
        &mut self,
        user: UserId,
        totp: Option<Totp>,
        codes: &[TokenDigest],
        renewal: Option<&Renewal>,
        by: &By,
    ) -> Answer<()> {
        let (workspace, email) = self.member(user, by)?;
        let action = if totp.is_some() { "user.totp_enabled" } else { "user.totp_disabled" };
        self.replace_totp(user, totp, codes);
        self.record(&workspace, action, email, by);
        self.end_other_sessions(user, renewal);
        Ok(())
    }

    /// Returns whether the password and the second factor are those that the caller read.
    fn is_current(&self, read: &User) -> bool {
        let secret = |user: &User| user.totp.as_ref().map(|totp| totp.secret.clone());
        let user = self.user(read.id);
        user.is_some_and(|user| user.password_hash == read.password_hash && secret(user) == secret(read))
    }

    pub(super) fn use_totp_step(&mut self, read: &User, step: u64) -> bool {
        let is_current = self.is_current(read);
        let user = self.users.iter_mut().find(|user| is_current && user.id == read.id);
        let totp = user.and_then(|user| user.totp.as_mut()).filter(|totp| totp.last_step < step);
        totp.map(|totp| totp.last_step = step).is_some()
    }

    pub(super) fn use_recovery_code(&mut self, read: &User, code: TokenDigest, by: &By) -> bool {
        let is_used = self.is_current(read) && self.codes.remove(&(read.id, code));
        if is_used {
            self.get_user(read.id).recovery_codes -= 1;
            self.record(&read.workspace, "user.recovery_code_used", read.email.as_str(), by);
        }
        is_used
    }

    pub(super) fn record_attempt(&mut self, user: UserId, action: &str, by: &By) -> Answer<()> {
        let (workspace, email) = self.member(user, by)?;
        self.record(&workspace, action, email, by);
        Ok(())
    }

    fn see(&mut self, user: UserId) {
        let now = Some(self.now);
        let user = self.get_user(user);
        user.last_seen_at = user.last_seen_at.max(now);
    }

    pub(super) fn begin_session(
        &mut self,
        new: Session,
        read: &User,
        used_since: Timestamp,
        by: &By,
    ) -> bool {
        let is_current = self.is_current(read);
        if is_current {
            self.see(read.id);
            self.sessions.retain(|session| session.last_seen_at >= used_since);
            self.sessions.push(new);
            self.record(&read.workspace, "user.signed_in", read.email.as_str(), by);
        }
        is_current
    }

    pub(super) fn touch_session(&mut self, digest: TokenDigest) {
        let now = self.now;
        if let Some(session) = self.sessions.iter_mut().find(|session| session.digest == digest) {
            session.last_seen_at = session.last_seen_at.max(now);
            let user = session.user;
            self.see(user);
        }
    }

    pub(super) fn renew_session(&mut self, renewal: &Renewal) -> Answer<()> {
        let session = self.sessions.iter().find(|session| session.digest == renewal.old);
        self.see(session.ok_or(["NotAllowed".to_owned()])?.user);
        self.renew(renewal);
        Ok(())
    }

    /// Ends the sessions of a user that match, and returns their number.
    pub(super) fn end_sessions(
        &mut self,
        user: UserId,
        is_one: impl Fn(&Session) -> bool,
        by: &By,
    ) -> Answer<u64> {
        if self.user(user).is_none() {
            return refuse(&[(by.session.is_some(), "NotAllowed")]).map(|()| 0);
        }
        let (workspace, email) = self.member(user, by)?;
        let is_ended = |session: &Session| session.user == user && is_one(session);
        refuse(&[(self.is_own(by, is_ended), "NotAllowed")])?;
        let ended = self.sessions.extract_if(.., |session| is_ended(session)).count();
        if ended > 0 {
            self.record(&workspace, "user.sessions_ended", format!("{email} ({ended})"), by);
        }
        Ok(ended as u64)
    }
}
