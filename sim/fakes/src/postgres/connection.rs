//! The PostgreSQL protocol: one session that supports the simple and the extended query protocol.

use std::collections::HashMap;
use std::io;

use bytes::{Bytes, BytesMut};
use pgwire::messages::data::{FieldDescription, NoData, ParameterDescription, RowDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, CloseComplete, Describe, Execute, Parse, ParseComplete,
};
use pgwire::messages::response::{
    CommandComplete, ErrorResponse, NotificationResponse, ReadyForQuery, SslResponse, TransactionStatus,
};
use pgwire::messages::startup::{Authentication, ParameterStatus};
use pgwire::messages::{
    DecodeContext, PgWireBackendMessage as Reply, PgWireFrontendMessage as Message, ProtocolVersion,
    SslNegotiationMetaMessage,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Postgres;
use super::calls::{Call, Fault};

const BINARY: i16 = 1;
const VARIABLE_SIZE: i16 = -1;
const READ_OCTETS: usize = 8 * 1024;

pub(super) async fn serve(
    server: &Postgres,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut session = Session::new(server);
    let mut notifications = server.notifications();
    notifications.mark_unchanged();
    let mut received = BytesMut::new();
    let mut replies = BytesMut::new();
    loop {
        while let Some(message) = session.decode(&mut received)? {
            if let Message::Terminate(_) = message {
                return Ok(());
            }
            session.answer(message, &mut replies)?;
        }
        stream.write_all_buf(&mut replies).await?;
        tokio::select! {
            biased;
            octets = async { received.reserve(READ_OCTETS); stream.read_buf(&mut received).await } => {
                if octets? == 0 {
                    return Ok(());
                }
            }
            changed = notifications.changed(), if session.listens => {
                changed.map_err(io::Error::other)?;
                let (channel, payload) = (super::calls::CHANNEL.to_owned(), String::new());
                put(&mut replies, Reply::NotificationResponse(NotificationResponse::new(1, channel, payload)))?;
            }
        }
    }
}

struct Session<'a> {
    server: &'a Postgres,
    context: DecodeContext,
    statements: HashMap<Option<String>, Call>,
    /// The unnamed portal.
    bound: Option<(Call, Vec<Option<Bytes>>)>,
    /// True after an error. Messages before the next Sync are ignored.
    is_failed: bool,
    listens: bool,
}

impl<'a> Session<'a> {
    fn new(server: &'a Postgres) -> Self {
        let context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        Self { server, context, statements: HashMap::new(), bound: None, is_failed: false, listens: false }
    }

    fn decode(&mut self, received: &mut BytesMut) -> io::Result<Option<Message>> {
        Message::decode(received, &self.context).map_err(io::Error::other)
    }

    fn answer(&mut self, message: Message, replies: &mut BytesMut) -> io::Result<()> {
        match message {
            Message::SslNegotiation(SslNegotiationMetaMessage::None) => {
                self.context.awaiting_frontend_ssl = false;
                Ok(())
            }
            Message::SslNegotiation(_) => put(replies, Reply::SslResponse(SslResponse::Refuse)),
            Message::Startup(_) => {
                self.context.awaiting_frontend_startup = false;
                put(replies, Reply::Authentication(Authentication::Ok))?;
                let version = ("server_version".to_owned(), "15.0".to_owned());
                put(replies, Reply::ParameterStatus(ParameterStatus::new(version.0, version.1)))?;
                ready(replies)
            }
            Message::Query(query) => {
                match Call::of(&query.query).and_then(|call| self.execute(call, &[], replies)) {
                    Ok(()) => {}
                    Err(fault) => put(replies, error(&fault))?,
                }
                ready(replies)
            }
            Message::Sync(_) => {
                self.is_failed = false;
                ready(replies)
            }
            _ if self.is_failed => Ok(()),
            message => self.extended(message, replies).or_else(|fault| {
                self.is_failed = true;
                put(replies, error(&fault))
            }),
        }
    }

    /// Handles a message of the extended query protocol.
    fn extended(&mut self, message: Message, replies: &mut BytesMut) -> Result<(), Fault> {
        match message {
            Message::Parse(Parse { name, query, .. }) => {
                self.statements.insert(name, Call::of(&query)?);
                tell(replies, Reply::ParseComplete(ParseComplete::new()))
            }
            Message::Describe(Describe { name, .. }) => {
                let call = self.statement(&name)?;
                let types = call.parameters().iter().map(|type_| type_.oid()).collect();
                tell(replies, Reply::ParameterDescription(ParameterDescription::new(types)))?;
                tell(replies, description(call))
            }
            Message::Bind(Bind { statement_name, parameters, .. }) => {
                self.bound = Some((self.statement(&statement_name)?, parameters));
                tell(replies, Reply::BindComplete(BindComplete::new()))
            }
            Message::Execute(Execute { .. }) => {
                let (call, parameters) =
                    self.bound.take().ok_or_else(|| Fault::new("34000", "there is no portal"))?;
                self.execute(call, &parameters, replies)
            }
            Message::Close(close) => {
                self.statements.remove(&close.name);
                tell(replies, Reply::CloseComplete(CloseComplete::new()))
            }
            Message::Flush(_) => Ok(()),
            other => Err(Fault::new("0A000", &format!("{other:?} is not understood"))),
        }
    }

    fn statement(&self, name: &Option<String>) -> Result<Call, Fault> {
        self.statements.get(name).copied().ok_or_else(|| Fault::new("26000", "there is no such statement"))
    }

    fn execute(
        &mut self,
        call: Call,
        parameters: &[Option<Bytes>],
        replies: &mut BytesMut,
    ) -> Result<(), Fault> {
        self.listens |= call == Call::Listen;
        let now = self.server.now_ms();
        for row in self.server.with(|books| call.run(books, now, parameters))? {
            tell(replies, Reply::DataRow(row))?;
        }
        tell(replies, Reply::CommandComplete(CommandComplete::new("SELECT 1".to_owned())))
    }
}

fn description(call: Call) -> Reply {
    let field = |(name, type_): &(&str, postgres_types::Type)| {
        FieldDescription::new((*name).to_owned(), 0, 0, type_.oid(), VARIABLE_SIZE, -1, BINARY)
    };
    match call.columns() {
        [] => Reply::NoData(NoData::new()),
        columns => Reply::RowDescription(RowDescription::new(columns.iter().map(field).collect())),
    }
}

fn ready(replies: &mut BytesMut) -> io::Result<()> {
    put(replies, Reply::ReadyForQuery(ReadyForQuery::new(TransactionStatus::Idle)))
}

fn error(fault: &Fault) -> Reply {
    let fields = [(b'S', "ERROR"), (b'V', "ERROR"), (b'C', fault.code), (b'M', &fault.message)];
    Reply::ErrorResponse(ErrorResponse::new(fields.map(|(field, value)| (field, value.to_owned())).to_vec()))
}

fn tell(replies: &mut BytesMut, reply: Reply) -> Result<(), Fault> {
    put(replies, reply).map_err(|e| Fault::new("08P01", &e.to_string()))
}

fn put(replies: &mut BytesMut, reply: Reply) -> io::Result<()> {
    reply.encode(replies).map_err(io::Error::other)
}
