//! The bytes of FILE or stdin, read on a thread, so that a signal also ends a read that waits for more.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

const BLOCK_BYTES: usize = 64 * 1024;

/// How many blocks are read ahead.
const BLOCKS_MAX: usize = 4;

/// The next bytes. No bytes are the end.
type Block = io::Result<Vec<u8>>;

pub struct Input {
    /// None after the end.
    blocks: Option<Receiver<Block>>,
    block: Cursor<Vec<u8>>,
}

/// Ends a read of an [`Input`] that waits.
pub struct Stop(SyncSender<Block>);

impl Input {
    pub fn new(mut file: impl Read + Send + 'static) -> (Self, Stop) {
        let (sender, blocks) = sync_channel(BLOCKS_MAX);
        let stop = Stop(sender.clone());
        thread::spawn(move || {
            loop {
                let block = read_block(&mut file);
                let is_last = block.as_ref().map_or(true, Vec::is_empty);
                if sender.send(block).is_err() || is_last {
                    return;
                }
            }
        });
        (Self { blocks: Some(blocks), block: Cursor::default() }, stop)
    }
}

fn read_block(file: &mut impl Read) -> Block {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(bytes) => {
                block.truncate(bytes);
                return Ok(block);
            }
        }
    }
}

impl Stop {
    pub fn stop(self) {
        // A full channel has no read that waits.
        let _ = self.0.try_send(Err(io::Error::other("interrupted")));
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_read = self.block.position() as usize == self.block.get_ref().len();
        if is_read && let Some(blocks) = &self.blocks {
            let block = blocks.recv().unwrap_or(Ok(Vec::new()))?;
            if block.is_empty() {
                self.blocks = None;
            }
            self.block = Cursor::new(block);
        }
        self.block.read(buffer)
    }
}
