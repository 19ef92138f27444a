//! The part of the PostgreSQL protocol that does not depend on the statements: the start of a session,
//! errors, and the encoding of replies.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use pgwire::messages::data::FieldDescription;
use pgwire::messages::response::{
    ErrorResponse, NoticeResponse, ReadyForQuery, SslResponse, TransactionStatus,
};
use pgwire::messages::startup::{Authentication, BackendKeyData, ParameterStatus, SecretKey};
use pgwire::messages::{
    DecodeContext, PgWireBackendMessage as Reply, PgWireFrontendMessage as Message, SslNegotiationMetaMessage,
};
use postgres_types::Type;

/// How many bytes to read at once.
pub(crate) const READ_BYTES: usize = 8 * 1024;

/// How often a statement that waits for another session tries again.
pub(crate) const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Answers the messages that start a session, without TLS or a password. Returns any other message.
pub(crate) fn start(
    session: u64,
    message: Message,
    context: &mut DecodeContext,
    replies: &mut BytesMut,
) -> io::Result<Option<Message>> {
    match message {
        Message::SslNegotiation(SslNegotiationMetaMessage::None) => context.awaiting_frontend_ssl = false,
        Message::SslNegotiation(_) => encode(replies, Reply::SslResponse(SslResponse::Refuse))?,
        Message::Startup(_) => {
            context.awaiting_frontend_startup = false;
            encode(replies, Reply::Authentication(Authentication::Ok))?;
            let (name, version) = ("server_version".to_owned(), "15.0".to_owned());
            encode(replies, Reply::ParameterStatus(ParameterStatus::new(name, version)))?;
            let key = BackendKeyData::new(session as i32, SecretKey::I32(0));
            encode(replies, Reply::BackendKeyData(key))?;
            ready(replies, TransactionStatus::Idle)?;
        }
        other => return Ok(Some(other)),
    }
    Ok(None)
}

/// Announces that the session is ready for the next statement.
pub(crate) fn ready(replies: &mut BytesMut, status: TransactionStatus) -> io::Result<()> {
    encode(replies, Reply::ReadyForQuery(ReadyForQuery::new(status)))
}

/// Describes a column of a result in binary.
pub(crate) fn field(name: &str, type_: &Type) -> FieldDescription {
    const BINARY: i16 = 1;
    const VARIABLE_SIZE: i16 = -1;
    FieldDescription::new(name.to_owned(), 0, 0, type_.oid(), VARIABLE_SIZE, -1, BINARY)
}

/// Creates an error with this severity and SQLSTATE code.
pub(crate) fn error_response(severity: &str, code: &str, message: &str) -> Reply {
    let fields = [(b'S', severity), (b'V', severity), (b'C', code), (b'M', message)];
    Reply::ErrorResponse(ErrorResponse::new(fields.map(|(field, value)| (field, value.to_owned())).to_vec()))
}

/// Returns the warning of a commit that does not wait for the standbys any more.
pub(crate) fn local_commit() -> Reply {
    let fields = [
        (b'S', "WARNING"),
        (b'V', "WARNING"),
        (b'C', "01000"),
        (b'M', "canceling wait for synchronous replication due to user request"),
        (b'R', "SyncRepWaitForLSN"),
    ];
    Reply::NoticeResponse(NoticeResponse::new(
        fields.map(|(field, value)| (field, value.to_owned())).to_vec(),
    ))
}

pub(crate) fn encode(replies: &mut BytesMut, reply: Reply) -> io::Result<()> {
    reply.encode(replies).map_err(io::Error::other)
}
