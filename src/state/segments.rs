//! The log of a channel: segments of bytes under their offset, appended and read by range.

use super::Namespace;
use crate::error::Result;
use crate::model::recipe::Piece;
use crate::spi::{BIGINT, BIGINTS, BYTESES, Db, Statement, TEXT, TEXTS, param};
use std::collections::HashMap;
use std::ops::Range;

/// The most bytes of one segment: an old version reads at most two segments in part, and a prune frees by segment.
const MAX_SEGMENT: usize = 256 << 10;

/// The most bytes that one statement appends, well below what an array can hold.
const MAX_STATEMENT: usize = 128 << 20;

// A log goes on behind its last segment. `rel` is where within what this statement appends to that log a segment begins.
static APPEND: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_segments AS s (thread_id, tenant, checkpoint_ns, log, start, data)
     SELECT $1, $2, $3, new.log, new.rel @+ COALESCE(
                (SELECT t.start @+ pg_catalog.octet_length(t.data) FROM @s.checkpoint_segments t
                 WHERE t.thread_id @= $1 AND t.tenant @= $2 AND t.checkpoint_ns @= $3 AND t.log @= new.log
                 ORDER BY t.start DESC LIMIT 1), 0), new.data
     FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6)) AS new (log, rel, data)
     RETURNING s.log, s.start",
    &[TEXT, TEXT, TEXT, TEXTS, BIGINTS, BYTESES],
);

static RANGE: Statement = Statement::new(
    "SELECT s.start, s.data FROM @s.checkpoint_segments s
     WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.checkpoint_ns @= $3 AND s.log @= $4
       AND s.start @>= COALESCE((SELECT f.start FROM @s.checkpoint_segments f
                                 WHERE f.thread_id @= $1 AND f.tenant @= $2 AND f.checkpoint_ns @= $3 AND f.log @= $4
                                   AND f.start @<= $5
                                 ORDER BY f.start DESC LIMIT 1), $5)
       AND s.start @< $6
     ORDER BY s.start",
    &[TEXT, TEXT, TEXT, TEXT, BIGINT, BIGINT],
);

/// Bytes on their way to the ends of logs.
#[derive(Default)]
pub struct Appender<'a> {
    logs: Vec<&'a str>,
    rels: Vec<i64>,
    data: Vec<&'a [u8]>,
    len_of: HashMap<&'a str, i64>,
}

impl<'a> Appender<'a> {
    /// Adds bytes to a log and returns where behind its present end they will stand.
    pub fn add(&mut self, log: &'a str, bytes: &'a [u8]) -> i64 {
        let len = self.len_of.entry(log).or_default();
        let rel = *len;
        for segment in bytes.chunks(MAX_SEGMENT) {
            self.logs.push(log);
            self.rels.push(*len);
            self.data.push(segment);
            *len += segment.len() as i64;
        }
        rel
    }

    /// Appends it all and returns where each log ended before. The caller holds the lock of the head.
    pub fn run(self, db: &Db, ns: Namespace<'_>) -> Result<HashMap<String, i64>> {
        let mut ends: HashMap<String, i64> = HashMap::new();
        let mut appended: HashMap<&str, i64> = HashMap::new();
        let mut from = 0;
        while from < self.data.len() {
            let mut bytes = 0;
            let fits = self.data[from..].iter().take_while(|segment| {
                bytes += segment.len();
                bytes <= MAX_STATEMENT
            });
            let to = from + fits.count().max(1);
            // What earlier statements of this call appended is before the end that this one finds.
            let rels: Vec<i64> =
                (from..to).map(|at| self.rels[at] - appended.get(self.logs[at]).copied().unwrap_or_default()).collect();
            let [thread_id, tenant, checkpoint_ns] = ns.args(db);
            let args = [
                thread_id,
                tenant,
                checkpoint_ns,
                param(self.logs[from..to].to_vec()),
                param(rels),
                param(self.data[from..to].to_vec()),
            ];
            for (log, start) in db.write(&APPEND, &args, |row| Ok((row.must::<String>(1)?, row.must::<i64>(2)?)))? {
                let end = ends.entry(log).or_insert(start);
                *end = (*end).min(start);
            }
            for at in from..to {
                *appended.entry(self.logs[at]).or_default() += self.data[at].len() as i64;
            }
            from = to;
        }
        Ok(ends)
    }
}

/// The logs of a namespace, as they are read.
pub struct Logs<'a> {
    db: &'a Db,
    ns: Namespace<'a>,
    kept: Vec<Stretch>,
}

/// A stretch of a log in memory.
struct Stretch {
    log: String,
    range: Range<u64>,
    segments: Vec<(u64, Vec<u8>)>,
}

impl<'a> Logs<'a> {
    pub fn new(db: &'a Db, ns: Namespace<'a>) -> Logs<'a> {
        Logs { db, ns, kept: Vec::new() }
    }

    /// Keeps a stretch in memory: what is read of it from now on takes no statement. The caller holds the lock of the head.
    pub fn keep(&mut self, log: &str, range: Range<u64>) -> Result<()> {
        let mut segments = Vec::new();
        self.segments(log, &range, |start, data| segments.push((start, data.to_vec())))?;
        self.kept.push(Stretch { log: log.to_owned(), range, segments });
        Ok(())
    }

    /// Shows the segments that have a part in a stretch, in order, with where they begin.
    fn segments(&self, log: &str, range: &Range<u64>, mut each: impl FnMut(u64, &[u8])) -> Result<()> {
        let holds = |kept: &&Stretch| kept.log == log && kept.range.start <= range.start && range.end <= kept.range.end;
        if let Some(kept) = self.kept.iter().find(holds) {
            kept.segments.iter().for_each(|(start, data)| each(*start, data));
            return Ok(());
        }
        let args = [param(log), param(range.start as i64), param(range.end as i64)];
        self.db.each(&RANGE, &self.ns.args_with(self.db, args), |row| {
            let start: i64 = row.must(1)?;
            each(start as u64, row.bytes(2)?);
            Ok(())
        })
    }

    /// The bytes that `pieces` of a log make up, behind `headroom` zeros for the caller's use; `None` where the log does not have
    /// them all.
    pub fn assemble(&self, log: &str, pieces: &[Piece], headroom: usize) -> Result<Option<Vec<u8>>> {
        let size = pieces.iter().map(Piece::len).sum::<u64>() as usize;
        let mut bytes: Vec<u8> = Vec::with_capacity(headroom + size);
        bytes.resize(headroom, 0);
        // Not zeroed first, which costs as much as a copy: each byte is written once below, or the value is not complete.
        let out = &mut bytes.spare_capacity_mut()[..size];
        let mut wanted = Vec::new();
        let mut at = 0;
        for piece in pieces {
            let len = piece.len() as usize;
            match piece {
                Piece::Literal(literal) => {
                    out[at..at + len].write_copy_of_slice(literal);
                }
                Piece::Extent { start, len } => wanted.push(Wanted { start: *start, end: start + len, at }),
            }
            at += len;
        }
        wanted.sort_by_key(|extent| extent.start);
        let mut missing: u64 = wanted.iter().map(|extent| extent.end - extent.start).sum();
        if let (Some(first), Some(last)) = (wanted.first(), wanted.iter().map(|extent| extent.end).max()) {
            let mut done = 0;
            self.segments(log, &(first.start..last), |start, data| {
                let end = start + data.len() as u64;
                // Extents can overlap; those before `done` are behind this segment.
                for extent in wanted[done..].iter().take_while(|extent| extent.start < end) {
                    let (from, to) = (extent.start.max(start), extent.end.min(end));
                    if from < to {
                        let at = extent.at + (from - extent.start) as usize;
                        out[at..at + (to - from) as usize]
                            .write_copy_of_slice(&data[(from - start) as usize..(to - start) as usize]);
                        missing -= to - from;
                    }
                }
                while wanted.get(done).is_some_and(|extent| extent.end <= end) {
                    done += 1;
                }
            })?;
        }
        if missing > 0 {
            return Ok(None);
        }
        // SAFETY: the literals and the extents are all of it, and no byte of an extent is missing: segments do not overlap, so
        // each was counted once.
        unsafe { bytes.set_len(headroom + size) };
        Ok(Some(bytes))
    }

    /// How many of `expected` the log has from `start` on.
    pub fn has_ahead(&self, log: &str, start: u64, expected: &[u8]) -> Result<usize> {
        let mut found = 0;
        self.segments(log, &(start..start + expected.len() as u64), |at, data| {
            let next = start + found as u64;
            // The first segment may end where `start` is.
            if (at..at + data.len() as u64).contains(&next) {
                let data = &data[(next - at) as usize..];
                found += data.iter().zip(&expected[found..]).take_while(|(a, b)| a == b).count();
            }
        })?;
        Ok(found)
    }
}

/// A stretch of the log, and where in the value it belongs.
struct Wanted {
    start: u64,
    end: u64,
    at: usize,
}
