//! The bytes of the file to import, or of stdin, read on a separate thread so that a signal can end a blocked
//! read.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

const BLOCK_BYTES: usize = 64 * 1024;

/// Maximum number of blocks to read ahead.
const BLOCKS_MAX: usize = 4;

/// The next bytes. An empty block marks the end of the input.
type Block = io::Result<Vec<u8>>;

/// A reader of the blocks that the thread has read.
pub struct Input {
    /// `None` after the end.
    blocks: Option<Receiver<Block>>,
    block: Cursor<Vec<u8>>,
}

/// Ends a blocked read of an [`Input`].
pub struct Stop(SyncSender<Block>);

impl Input {
    /// Starts the thread.
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
    /// Ends the read with an error, after the blocks that are already read.
    pub fn stop(self) {
        // If the channel is full, no read is blocked.
        let _ = self.0.try_send(Err(io::Error::other("interrupted")));
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_consumed = self.block.position() as usize == self.block.get_ref().len();
        if is_consumed && let Some(blocks) = &self.blocks {
            let block = blocks.recv().unwrap_or(Ok(Vec::new()))?;
            if block.is_empty() {
                self.blocks = None;
            }
            self.block = Cursor::new(block);
        }
        self.block.read(buffer)
    }
}
