//! The protocol: one session.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pgwire::messages::data::{NoData, ParameterDescription, RowDescription};
use pgwire::messages::extendedquery::{Bind, BindComplete, Parse, ParseComplete};
use pgwire::messages::response::{CommandComplete, TransactionStatus};
use pgwire::messages::{
    DecodeContext, PgWireBackendMessage as Reply, PgWireFrontendMessage as Message, ProtocolVersion,
};
use rusqlite::types::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::server::{NotRun, Rows, SqlServer};
use super::values;
use crate::protocol::{self, LOCK_INTERVAL, READ_BYTES, encode};

/// The `idle_in_transaction_session_timeout`: the client of an open transaction may be gone.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);

impl SqlServer {
    /// Serves one connection until it closes. Then, or when the future is dropped, an open transaction is
    /// rolled back.
    pub async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut session = Session::new(self);
        let (mut received, mut replies) = (BytesMut::new(), BytesMut::new());
        loop {
            while let Some(message) =
                Message::decode(&mut received, &session.context).map_err(io::Error::other)?
            {
                if let Message::Terminate(_) = message {
                    return Ok(());
                }
                session.handle(message, &mut replies).await?;
            }
            stream.write_all_buf(&mut replies).await?;
            received.reserve(READ_BYTES);
            let read = stream.read_buf(&mut received);
            let count = match self.is_in_transaction(session.number) {
                true => timeout(IDLE_IN_TRANSACTION, read).await.unwrap_or(Ok(0))?,
                false => read.await?,
            };
            if count == 0 {
                return Ok(());
            }
        }
    }
}

struct Session<'a> {
    server: &'a SqlServer,
    number: u64,
    context: DecodeContext,
    /// The unnamed statement with the types of its parameters.
    parsed: (String, Vec<u32>),
    arguments: Vec<Option<Bytes>>,
    /// True if the result of the next execution must be described first.
    describes: bool,
    /// True after an error. Messages before the next Sync are ignored.
    is_failed: bool,
    /// True after an error in a transaction, until it is rolled back.
    is_aborted: bool,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.server.roll_back(self.number);
    }
}

impl<'a> Session<'a> {
    fn new(server: &'a SqlServer) -> Self {
        Self {
            server,
            number: server.open_session(),
            context: DecodeContext::new(ProtocolVersion::PROTOCOL3_0),
            parsed: Default::default(),
            arguments: Vec::new(),
            describes: false,
            is_failed: false,
            is_aborted: false,
        }
    }

    async fn handle(&mut self, message: Message, replies: &mut BytesMut) -> io::Result<()> {
        let Some(message) = protocol::start(self.number, message, &mut self.context, replies)? else {
            return Ok(());
        };
        match message {
            Message::Query(query) => {
                match self.run_all(&query.query).await {
                    Ok(result) => complete(replies, result.count)?,
                    Err(error) => encode(replies, error_response(&error))?,
                }
                self.ready(replies)
            }
            Message::Sync(_) => {
                self.is_failed = false;
                self.ready(replies)
            }
            _ if self.is_failed => Ok(()),
            Message::Parse(Parse { query, type_oids, .. }) => {
                self.parsed = (query, type_oids);
                encode(replies, Reply::ParseComplete(ParseComplete::new()))
            }
            Message::Bind(Bind { parameters, .. }) => {
                self.arguments = parameters;
                encode(replies, Reply::BindComplete(BindComplete::new()))
            }
            Message::Describe(_) => {
                self.describes = true;
                Ok(())
            }
            Message::Execute(_) => match self.execute().await {
                Ok(result) => self.reply(result, replies),
                Err(error) => {
                    self.is_failed = true;
                    encode(replies, error_response(&error))
                }
            },
            Message::Flush(_) => Ok(()),
            other => Err(io::Error::other(format!("the fake does not support this message: {other:?}"))),
        }
    }

    /// Runs the statements of a simple query. No literal may contain a semicolon.
    async fn run_all(&mut self, sql: &str) -> Result<Rows, String> {
        let mut result = Rows::default();
        for statement in sql.split_terminator(';') {
            result = self.run(statement, &[]).await?;
        }
        Ok(result)
    }

    /// Executes the unnamed statement.
    async fn execute(&mut self) -> Result<Rows, String> {
        let (sql, types) = self.parsed.clone();
        let arguments = types.iter().zip(&self.arguments);
        let arguments = arguments.map(|(oid, bytes)| values::argument(*oid, bytes.as_ref()));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        self.run(&sql, &arguments).await
    }

    /// Runs a statement, which may wait for the transaction of another session.
    async fn run(&mut self, sql: &str, arguments: &[Value]) -> Result<Rows, String> {
        if self.is_aborted && sql.trim_start().to_uppercase().starts_with("ROLLBACK") {
            self.server.roll_back(self.number);
            self.is_aborted = false;
            return Ok(Rows::default());
        }
        if self.is_aborted {
            return Err("current transaction is aborted".to_owned());
        }
        loop {
            match self.server.run(self.number, sql, arguments) {
                Ok(result) => return Ok(result),
                Err(NotRun::Locked) => sleep(LOCK_INTERVAL).await,
                Err(NotRun::Failed(error)) => {
                    self.is_aborted = self.server.is_in_transaction(self.number);
                    return Err(error);
                }
            }
        }
    }

    fn reply(&mut self, Rows { columns, rows, count }: Rows, replies: &mut BytesMut) -> io::Result<()> {
        if std::mem::take(&mut self.describes) {
            let types = self.parsed.1.clone();
            encode(replies, Reply::ParameterDescription(ParameterDescription::new(types)))?;
            encode(
                replies,
                match columns.is_empty() {
                    true => Reply::NoData(NoData::new()),
                    false => Reply::RowDescription(RowDescription::new(values::columns(&columns, &rows))),
                },
            )?;
        }
        for row in rows {
            encode(replies, Reply::DataRow(values::row(&row)))?;
        }
        complete(replies, count)
    }

    fn ready(&self, replies: &mut BytesMut) -> io::Result<()> {
        let status = match (self.is_aborted, self.server.is_in_transaction(self.number)) {
            (true, _) => TransactionStatus::Error,
            (false, true) => TransactionStatus::Transaction,
            (false, false) => TransactionStatus::Idle,
        };
        protocol::ready(replies, status)
    }
}

fn complete(replies: &mut BytesMut, count: u64) -> io::Result<()> {
    encode(replies, Reply::CommandComplete(CommandComplete::new(format!("UPDATE {count}"))))
}

fn error_response(message: &str) -> Reply {
    protocol::error_response("ERROR", "XX000", message)
}
