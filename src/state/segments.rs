//! The log of a channel: segments of bytes under their offset, appended and read by range.

use super::Namespace;
use crate::error::Result;
use crate::model::packing::{pack, unpack};
use crate::model::recipe::Piece;
use crate::spi::{BIGINT, BIGINTS, BYTESES, Db, INTS, Row, Statement, TEXT, TEXTS, param};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// The most bytes of one segment: an old version reads at most two segments in part, and a prune frees by segment.
const MAX_SEGMENT: usize = 256 << 10;

/// The most bytes that one statement appends, well below what an array can hold.
const MAX_STATEMENT: usize = 128 << 20;

// A log goes on behind its last segment. `rel` is where within what this statement appends to that log a segment begins.
static APPEND: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_segments AS s (thread_id, tenant, checkpoint_ns, log, start, len, data)
     SELECT $1, $2, $3, new.log, new.rel @+ COALESCE(
                (SELECT t.start @+ t.len FROM @s.checkpoint_segments t
                 WHERE t.thread_id @= $1 AND t.tenant @= $2 AND t.checkpoint_ns @= $3 AND t.log @= new.log
                 ORDER BY t.start DESC LIMIT 1), 0), new.len, new.data
     FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6), pg_catalog.unnest($7))
          AS new (log, rel, len, data)
     RETURNING s.log, s.start",
    &[TEXT, TEXT, TEXT, TEXTS, BIGINTS, INTS, BYTESES],
);

// The segment that reaches into the range from before it is looked for nearby first: an index scan takes in all that its page has
// of the log, unless a lower end tells it to stop.
static RANGE: Statement = Statement::new(
    "SELECT s.start, s.len, s.data FROM @s.checkpoint_segments s
     WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.checkpoint_ns @= $3 AND s.log @= $4
       AND s.start @>= COALESCE((SELECT f.start FROM @s.checkpoint_segments f
                                 WHERE f.thread_id @= $1 AND f.tenant @= $2 AND f.checkpoint_ns @= $3 AND f.log @= $4
                                   AND f.start @<= $5 AND f.start @> ($5 @- 4096)
                                 ORDER BY f.start DESC LIMIT 1),
                                (SELECT f.start FROM @s.checkpoint_segments f
                                 WHERE f.thread_id @= $1 AND f.tenant @= $2 AND f.checkpoint_ns @= $3 AND f.log @= $4
                                   AND f.start @<= $5
                                 ORDER BY f.start DESC LIMIT 1), $5)
       AND s.start @< $6
     ORDER BY s.start",
    &[TEXT, TEXT, TEXT, TEXT, BIGINT, BIGINT],
);

// Puts segments where they belong in a log.
static PUT: Statement = Statement::new(
    "INSERT INTO @s.checkpoint_segments (thread_id, tenant, checkpoint_ns, log, start, len, data)
     SELECT $1, $2, $3, $4, new.start, new.len, new.data
     FROM ROWS FROM (pg_catalog.unnest($5), pg_catalog.unnest($6), pg_catalog.unnest($7)) AS new (start, len, data)",
    &[TEXT, TEXT, TEXT, TEXT, BIGINTS, INTS, BYTESES],
);

static DROP: Statement = Statement::new(
    "DELETE FROM @s.checkpoint_segments s
     WHERE s.thread_id @= $1 AND s.tenant @= $2 AND s.checkpoint_ns @= $3 AND s.log @= $4 AND s.start @= ANY ($5)",
    &[TEXT, TEXT, TEXT, TEXT, BIGINTS],
);

/// Removes the segments of a log that begin at `starts`.
pub fn remove(db: &Db, ns: Namespace<'_>, log: &str, starts: Vec<i64>) -> Result<()> {
    db.execute(&DROP, &ns.args_with(db, [param(log), param(starts)]))?;
    Ok(())
}

/// Leaves of a segment only some stretches, where they are.
pub fn cut(db: &Db, ns: Namespace<'_>, log: &str, segment: &Range<u64>, stretches: &[Range<u64>]) -> Result<()> {
    let logs = Logs::new(db, ns);
    let mut parts = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        let piece = Piece::Extent { start: stretch.start, len: stretch.end - stretch.start };
        // A damaged segment stays for whoever looks into it.
        let Some(part) = logs.assemble(log, &[piece], 0)? else { return Ok(()) };
        parts.push(part);
    }
    remove(db, ns, log, vec![segment.start as i64])?;
    let packed: Vec<Cow<'_, [u8]>> = parts.iter().map(|part| pack(part)).collect();
    let args = [
        param(log),
        param(stretches.iter().map(|stretch| stretch.start as i64).collect::<Vec<_>>()),
        param(parts.iter().map(|part| part.len() as i32).collect::<Vec<_>>()),
        param(packed.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>()),
    ];
    db.execute(&PUT, &ns.args_with(db, args))?;
    Ok(())
}

// The same for several ranges, in order.
static RANGES: Statement = Statement::new(
    "SELECT s.start, s.len, s.data
     FROM ROWS FROM (pg_catalog.unnest($5), pg_catalog.unnest($6)) AS wanted (start, stop)
     JOIN LATERAL (
         SELECT t.start, t.len, t.data FROM @s.checkpoint_segments t
         WHERE t.thread_id @= $1 AND t.tenant @= $2 AND t.checkpoint_ns @= $3 AND t.log @= $4
           AND t.start @>= COALESCE((SELECT f.start FROM @s.checkpoint_segments f
                                     WHERE f.thread_id @= $1 AND f.tenant @= $2 AND f.checkpoint_ns @= $3 AND f.log @= $4
                                       AND f.start @<= wanted.start
                                     ORDER BY f.start DESC LIMIT 1), wanted.start)
           AND t.start @< wanted.stop
         ORDER BY t.start
     ) AS s ON true",
    &[TEXT, TEXT, TEXT, TEXT, BIGINTS, BIGINTS],
);

/// Ranges of a log with less than this between them are read as one.
const GAP: u64 = 16 << 10;

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
            let packed: Vec<Cow<'_, [u8]>> = self.data[from..to].iter().map(|data| pack(data)).collect();
            let [thread_id, tenant, checkpoint_ns] = ns.args(db);
            let args = [
                thread_id,
                tenant,
                checkpoint_ns,
                param(self.logs[from..to].to_vec()),
                param(rels),
                param(self.data[from..to].iter().map(|data| data.len() as i32).collect::<Vec<_>>()),
                param(packed.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>()),
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
        self.segments(log, std::slice::from_ref(&range), |start, data| segments.push((start, data.to_vec())))?;
        self.kept.push(Stretch { log: log.to_owned(), range, segments });
        Ok(())
    }

    /// Shows the segments that have a part in some stretches, which are in order, each once, with where they begin.
    fn segments(&self, log: &str, ranges: &[Range<u64>], mut each: impl FnMut(u64, &[u8])) -> Result<()> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Ok(());
        };
        let range = first.start..last.end;
        let holds = |kept: &&Stretch| kept.log == log && kept.range.start <= range.start && range.end <= kept.range.end;
        if let Some(kept) = self.kept.iter().find(holds) {
            kept.segments.iter().for_each(|(start, data)| each(*start, data));
            return Ok(());
        }
        let mut shown = None;
        let show = |row: &mut Row<'_>| {
            let (start, len) = (row.must::<i64>(1)?, row.must::<i32>(2)?);
            // A long segment can reach from one stretch into the next. What cannot be unpacked is missing.
            if shown.replace(start) != Some(start)
                && let Some(data) = unpack(row.bytes(3)?, len as usize)
            {
                each(start as u64, &data);
            }
            Ok(())
        };
        if ranges.len() == 1 {
            let args = [param(log), param(range.start as i64), param(range.end as i64)];
            return self.db.each(&RANGE, &self.ns.args_with(self.db, args), show);
        }
        let (starts, ends): (Vec<i64>, Vec<i64>) =
            ranges.iter().map(|range| (range.start as i64, range.end as i64)).unzip();
        let args = [param(log), param(starts), param(ends)];
        self.db.each(&RANGES, &self.ns.args_with(self.db, args), show)
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
        let mut done = 0;
        self.segments(log, &ranges(&wanted), |start, data| {
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
        let wanted = start..start + expected.len() as u64;
        self.segments(log, std::slice::from_ref(&wanted), |at, data| {
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

/// What to read for these extents, which are ordered by their start: what stands close together at once.
fn ranges(wanted: &[Wanted]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for extent in wanted {
        match ranges.last_mut() {
            Some(last) if extent.start <= last.end + GAP => last.end = last.end.max(extent.end),
            _ => ranges.push(extent.start..extent.end),
        }
    }
    ranges
}
