//! The Redis protocol (RESP): a request is an array of strings. The fake replies to it before it reads the
//! next.

use std::io;

use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};

use super::counters::{Rejection, Validity};
use super::server::Redis;

/// Larger than any request of the adapter.
const BYTES_MAX: usize = 64 * 1024;

impl Redis {
    /// Serves one connection until it closes.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some(request) = read_request(&mut stream).await? {
            let reply = execute(self, &request);
            stream.write_all(reply.as_bytes()).await?;
            stream.flush().await?;
        }
        Ok(())
    }
}

/// Reads a request. Returns `None` at the end of the stream.
async fn read_request(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Vec<Vec<u8>>>> {
    let Some(arguments) = read_length(stream, b'*').await? else { return Ok(None) };
    let mut request = Vec::new();
    for _ in 0..arguments {
        let bytes = read_length(stream, b'$').await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut argument = vec![0; bytes + 2];
        stream.read_exact(&mut argument).await?;
        argument.truncate(bytes);
        request.push(argument);
    }
    Ok(Some(request))
}

async fn read_length(stream: &mut (impl AsyncBufRead + Unpin), kind: u8) -> io::Result<Option<usize>> {
    let mut line = Vec::new();
    if stream.read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    let digits = line.strip_prefix(&[kind]).and_then(|line| line.strip_suffix(b"\r\n"));
    let length = digits.and_then(|digits| str::from_utf8(digits).ok()).and_then(|digits| digits.parse().ok());
    let length = length.filter(|length| *length <= BYTES_MAX);
    length.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a Redis request"))
}

fn execute(server: &Redis, request: &[Vec<u8>]) -> String {
    let mut arguments = request.iter().map(Vec::as_slice);
    let command = arguments.next().map(<[u8]>::to_ascii_uppercase).unwrap_or_default();
    let rest: Vec<_> = arguments.collect();
    match (&command[..], &rest[..]) {
        (b"PING", _) => "+PONG\r\n".to_owned(),
        (b"AUTH" | b"CLIENT" | b"SELECT", _) => "+OK\r\n".to_owned(),
        (b"SCRIPT", [load, script]) if load.eq_ignore_ascii_case(b"LOAD") => {
            let sha1 = sha1_smol::Sha1::from(script).digest().to_string();
            server.lock().scripts.insert(sha1.clone());
            format!("${}\r\n{sha1}\r\n", sha1.len())
        }
        (b"EVALSHA", [sha1, ..]) if !server.lock().scripts.contains(&*String::from_utf8_lossy(sha1)) => {
            "-NOSCRIPT No matching script.\r\n".to_owned()
        }
        // The adapter has only one script.
        (b"EVALSHA", [_, b"1", key, requests, expires_at, counts_from]) => {
            let numbers = (number(requests), number(expires_at), number(counts_from));
            let (Some(requests), Some(expires_at), Some(counts_from)) = numbers else {
                return "-ERR value is not an integer or out of range\r\n".to_owned();
            };
            let validity = Validity { counts_from, expires_at };
            match server.lock().counters.count(key, requests, validity, server.now_ms()) {
                Ok(count) => format!(":{count}\r\n"),
                Err(Rejection::Late(ms)) => format!("-LATE {ms}\r\n"),
                Err(Rejection::Early(ms)) => format!("-EARLY {ms}\r\n"),
            }
        }
        _ => format!("-ERR unknown command {}\r\n", String::from_utf8_lossy(&command)),
    }
}

fn number(text: &[u8]) -> Option<i64> {
    str::from_utf8(text).ok()?.parse().ok()
}
