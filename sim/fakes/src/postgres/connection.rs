//! The PostgreSQL protocol: one session that supports the simple and the extended query protocol.

use std::collections::HashMap;
use std::io;

use bytes::{Bytes, BytesMut};
use pgwire::messages::data::{DataRow, NoData, ParameterDescription, RowDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, CloseComplete, Describe, Execute, Parse, ParseComplete,
};
use pgwire::messages::response::{CommandComplete, TransactionStatus};
use pgwire::messages::{
    DecodeContext, PgWireBackendMessage as Reply, PgWireFrontendMessage as Message, ProtocolVersion,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use super::database::Database;
use super::server::{Commit, Postgres};
use super::statements::Statement;
use super::values::{Severity, SqlError};
use crate::protocol::{self, LOCK_INTERVAL, READ_BYTES, encode};

impl Postgres {
    /// Serves one connection until it closes.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let session = Session::new(self);
        let number = session.number;
        tokio::select! {
            biased;
            // A statement that ends the server sends its error first.
            served = session.serve(stream) => served,
            () = self.terminated(number) => Ok(()),
        }
    }
}

struct Session<'a> {
    server: &'a Postgres,
    /// Later sessions have greater numbers.
    number: u64,
    context: DecodeContext,
    statements: HashMap<Option<String>, Statement>,
    /// The unnamed portal.
    bound: Option<(Statement, Vec<Option<Bytes>>)>,
    /// True after an error. Messages before the next Sync are ignored.
    is_failed: bool,
    /// True after an error that ends the session.
    is_over: bool,
}

impl<'a> Session<'a> {
    fn new(server: &'a Postgres) -> Self {
        let context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        Self {
            server,
            number: server.open_session(),
            context,
            statements: HashMap::new(),
            bound: None,
            is_failed: false,
            is_over: false,
        }
    }

    async fn serve(mut self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut received = BytesMut::new();
        let mut replies = BytesMut::new();
        loop {
            while let Some(message) = self.decode(&mut received)? {
                if let Message::Terminate(_) = message {
                    return Ok(());
                }
                self.handle(message, &mut replies).await?;
                if self.is_over {
                    return stream.write_all_buf(&mut replies).await;
                }
            }
            stream.write_all_buf(&mut replies).await?;
            received.reserve(READ_BYTES);
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
            if let Some(delay) = self.server.delay(self.number) {
                sleep(delay).await;
            }
        }
    }

    fn decode(&mut self, received: &mut BytesMut) -> io::Result<Option<Message>> {
        Message::decode(received, &self.context).map_err(io::Error::other)
    }

    async fn handle(&mut self, message: Message, replies: &mut BytesMut) -> io::Result<()> {
        match &message {
            Message::Startup(_) => {
                if let Err(error) = self.server.admits() {
                    return self.reply_error(&error, replies);
                }
            }
            Message::CancelRequest(request) => {
                self.server.cancel(request.pid as u64);
                self.is_over = true;
                return Ok(());
            }
            _ => {}
        }
        let started = protocol::start(self.number, message, &mut self.context, replies)?;
        let Some(message) = started else { return Ok(()) };
        match message {
            Message::Query(query) => {
                let executed = match Statement::parse(&query.query) {
                    Ok(statement) => self.simple(statement, replies).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = executed {
                    self.reply_error(&error, replies)?;
                }
                ready(replies)
            }
            Message::Sync(_) => {
                self.is_failed = false;
                ready(replies)
            }
            _ if self.is_failed => Ok(()),
            message => self.extended(message, replies).await.or_else(|error| {
                self.is_failed = true;
                self.reply_error(&error, replies)
            }),
        }
    }

    fn reply_error(&mut self, error: &SqlError, replies: &mut BytesMut) -> io::Result<()> {
        self.is_over = error.severity != Severity::Error;
        encode(replies, protocol::error_response(error.severity.name(), error.code, &error.message))
    }

    /// Executes a statement of the simple query protocol. Its results have only text columns.
    async fn simple(&mut self, statement: Statement, replies: &mut BytesMut) -> Result<(), SqlError> {
        if !statement.columns().is_empty() {
            push(replies, description(statement))?;
        }
        self.execute(statement, &[], replies).await
    }

    /// Handles a message of the extended query protocol.
    async fn extended(&mut self, message: Message, replies: &mut BytesMut) -> Result<(), SqlError> {
        match message {
            Message::Parse(Parse { name, query, .. }) => {
                self.statements.insert(name, Statement::parse(&query)?);
                push(replies, Reply::ParseComplete(ParseComplete::new()))
            }
            Message::Describe(Describe { name, .. }) => {
                let statement = self.statement(&name)?;
                let types = statement.parameters().iter().map(|type_| type_.oid()).collect();
                push(replies, Reply::ParameterDescription(ParameterDescription::new(types)))?;
                push(replies, description(statement))
            }
            Message::Bind(Bind { statement_name, parameters, .. }) => {
                self.bound = Some((self.statement(&statement_name)?, parameters));
                push(replies, Reply::BindComplete(BindComplete::new()))
            }
            Message::Execute(Execute { .. }) => {
                let (statement, parameters) =
                    self.bound.take().ok_or_else(|| SqlError::new("34000", "the portal does not exist"))?;
                self.execute(statement, &parameters, replies).await
            }
            Message::Close(close) => {
                self.statements.remove(&close.name);
                push(replies, Reply::CloseComplete(CloseComplete::new()))
            }
            Message::Flush(_) => Ok(()),
            other => {
                Err(SqlError::new("0A000", &format!("the fake does not support this message: {other:?}")))
            }
        }
    }

    fn statement(&self, name: &Option<String>) -> Result<Statement, SqlError> {
        self.statements
            .get(name)
            .copied()
            .ok_or_else(|| SqlError::new("26000", "the statement does not exist"))
    }

    /// Executes a statement, which may wait for locks.
    async fn execute(
        &mut self,
        statement: Statement,
        parameters: &[Option<Bytes>],
        replies: &mut BytesMut,
    ) -> Result<(), SqlError> {
        let _executing = self.server.begin_statement(self.number);
        let started_at = Instant::now();
        let (rows, commit) = loop {
            match self.run(statement, parameters) {
                Err(error) if error.is_lock() && self.server.is_canceled(self.number) => {
                    return Err(SqlError::new("57014", "canceling statement due to user request"));
                }
                Err(error) if error.is_lock() && statement.waits_for_lock(started_at.elapsed()) => {
                    sleep(LOCK_INTERVAL).await;
                }
                executed => break executed?,
            }
        };
        if let Some(commit) = commit {
            let committed = self.commit(commit, statement.is_synchronous(parameters)).await;
            self.server.unlock(self.number);
            if !committed? {
                push(replies, protocol::local_commit())?;
            }
        }
        for row in rows {
            push(replies, Reply::DataRow(row))?;
        }
        push(replies, Reply::CommandComplete(CommandComplete::new("SELECT 1".to_owned())))
    }

    /// Waits until the transaction is durable here and on the standby, if it is synchronous. It becomes durable
    /// even if the session ends meanwhile. A cancel request ends only the wait for the standby: returns whether
    /// the standby has it then.
    async fn commit(&self, commit: Commit, is_synchronous: bool) -> Result<bool, SqlError> {
        let (server, time) = (self.server.clone(), self.server.commit_time());
        let commit = if is_synchronous { server.fail_commit(commit)? } else { commit };
        let written = commit.written().filter(|_| is_synchronous);
        if time.is_zero() {
            server.make_durable(commit);
        } else {
            let flushing = tokio::spawn(async move {
                sleep(time).await;
                server.make_durable(commit);
            });
            if written.is_some() {
                let _ = flushing.await;
            }
        }
        match written {
            Some(number) => Ok(self.server.replicated(number, self.number).await),
            None => Ok(true),
        }
    }

    /// Executes a statement, and returns its rows and its commit, if it may write.
    fn run(
        &self,
        statement: Statement,
        parameters: &[Option<Bytes>],
    ) -> Result<(Vec<DataRow>, Option<Commit>), SqlError> {
        let (server, session, now) = (self.server, self.number, self.server.now_ms());
        if server.is_locked(statement.tables()) {
            return Err(SqlError::locked());
        }
        let is_read_only = server.is_read_only(session);
        let run = |database: &mut Database| statement.run(database, now, is_read_only, parameters);
        match statement.needs_primary() {
            true => {
                let (rows, commit) = server.write_in(session, statement.locks(parameters)?, run)?;
                let rows = rows.inspect_err(|_| server.unlock(session))?;
                Ok((rows, statement.writes().then_some(commit)))
            }
            false => Ok((server.read_in(session, statement.reads_holds(), run)?, None)),
        }
    }
}

/// The session may end in the middle of a statement.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.server.unlock(self.number);
    }
}

fn description(statement: Statement) -> Reply {
    let fields = statement.columns().iter().map(|(name, type_)| protocol::field(name, type_));
    match statement.columns() {
        [] => Reply::NoData(NoData::new()),
        _ => Reply::RowDescription(RowDescription::new(fields.collect())),
    }
}

fn ready(replies: &mut BytesMut) -> io::Result<()> {
    protocol::ready(replies, TransactionStatus::Idle)
}

fn push(replies: &mut BytesMut, reply: Reply) -> Result<(), SqlError> {
    encode(replies, reply).map_err(|e| SqlError::new("08P01", &e.to_string()))
}
