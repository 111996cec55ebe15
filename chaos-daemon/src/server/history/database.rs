//! One SQLite database of runs.
//!
//! The server is shut in, and SQLite is made to need little: a rollback journal that is truncated (no shared memory, and no
//! file removed but the journal of a server that was killed while it wrote), nothing temporary in files, and syncs, so that
//! a power failure costs no more than the run that was being written.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::{Type, Value as Sql};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, params, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::conditions::conditions;
use super::migrations::MIGRATIONS;
use super::score::score;
use super::{ExperimentResult, Filter, Found, Latest, Recorded, Retention, RunFault, SHARE, Summary, Total};
use crate::experiment::stage::Step;
use crate::experiment::timeline::{Occurrence, Reading};
use crate::experiment::{FailureMode, Fate, Stage, Verdict};
use crate::spec::Owner;

/// How long another user of the file is waited for: a server that has not quite ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// The version that this program makes and knows.
#[cfg(test)]
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// What makes version 1.
#[cfg(test)]
pub(super) const FIRST: &str = MIGRATIONS[0];

/// The columns of a run, in the order in which `result` reads them.
const RUN: &str = "id, experiment, verdict, success, steady_before, steady_after, seconds, error, started_at, affected, \
                   gate_reaction, digest, samples_left_out, recovery, stage, next, staged, failure_mode, verified, owner";

/// What is read of a fault.
const FAULT: &str = "SELECT name, fault_type, target, seconds, weight, injected, effective, removed_clean, evidence FROM fault";

/// Why a database is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// SQLite says so.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// It has a version that is not known here.
    #[error("it is of version {found}, and this program knows up to {}: keep the newer program", MIGRATIONS.len())]
    Newer {
        /// Its version.
        found: i64,
    },
    /// It is not what its version says.
    #[error("it lacks what belongs into it: {0}")]
    Foreign(rusqlite::Error),
    /// There is none, for this reason.
    #[error("{0}")]
    NoFile(String),
}

impl Problem {
    /// Whether the file is no database, or none of ours: another one in its place helps.
    pub(super) fn is_broken(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Foreign(_) => true,
            Self::Sqlite(error) => matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase)),
            Self::Newer { .. } | Self::NoFile(_) => false,
        }
    }
}

pub(super) type Result<T> = std::result::Result<T, Problem>;

/// One database.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) connection: Connection,
}

impl Database {
    /// An empty one that goes with the process.
    pub(super) fn memory() -> Result<Self> {
        Self::prepare(Connection::open_in_memory()?)
    }

    /// Whether it goes with the process.
    pub(super) fn is_memory(&self) -> bool {
        self.connection.path().is_none_or(str::is_empty)
    }

    /// That of this file, which is made when there is none, and brought to this program's version.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        Self::prepare(Connection::open_with_flags(path, flags)?)
    }

    fn prepare(connection: Connection) -> Result<Self> {
        connection.busy_timeout(PATIENCE)?;
        connection.execute_batch(
            "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; \
             PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;",
        )?;
        let mut database = Self { connection };
        database.migrate()?;
        // What every question needs is there, whatever the version says.
        for needed in [
            format!("SELECT {RUN} FROM run"),
            "SELECT 1 FROM fault, event, sample, document, total, imported".to_owned(),
        ] {
            database.connection.prepare(&needed).map_err(foreign)?;
        }
        Ok(database)
    }

    fn migrate(&mut self) -> Result<()> {
        let found: i64 = self.connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        if found > known {
            return Err(Problem::Newer { found });
        }
        let done = usize::try_from(found).unwrap_or_default();
        for (index, migration) in MIGRATIONS.iter().enumerate().skip(done) {
            let change = self.connection.transaction()?;
            change.execute_batch(migration).map_err(foreign)?;
            change.execute_batch(&format!("PRAGMA user_version = {}", index + 1))?;
            change.commit()?;
        }
        Ok(())
    }

    /// Lets the file have this many pages at most; it never gets smaller by that.
    #[cfg(test)]
    pub(super) fn limit(&self, pages: i64) {
        self.connection.execute_batch(&format!("PRAGMA max_page_count = {pages}")).unwrap();
    }

    /// Whether this run is recorded.
    pub(super) fn has(&self, run_id: &str) -> bool {
        let found = self.connection.query_row("SELECT 1 FROM run WHERE id = ?", [run_id], |_| Ok(()));
        found.is_ok()
    }

    /// Records a run, unless it is there, and forgets those that are no longer to be kept.
    pub(super) fn record(&mut self, recorded: &Recorded, retention: Retention) -> Result<()> {
        let change = self.connection.transaction()?;
        if insert(&change, recorded)? {
            let owner = recorded.owner().to_string();
            count(&change, &owner, &recorded.run.experiment_name, Total::of(&recorded.run))?;
            prune(&change, &owner, retention)?;
        }
        Ok(change.commit()?)
    }

    /// Takes over results and totals of before there was a history; the second time nothing happens.
    pub(super) fn import(
        &mut self,
        results: &[ExperimentResult],
        totals: &BTreeMap<String, Total>,
    ) -> Result<()> {
        let change = self.connection.transaction()?;
        if change.execute("INSERT OR IGNORE INTO imported VALUES ('registry')", [])? == 1 {
            for run in results {
                insert(&change, &Recorded { run: run.clone(), ..Recorded::default() })?;
            }
            for (experiment, total) in totals {
                count(&change, &Owner::ROOT.to_string(), experiment, *total)?;
            }
        }
        Ok(change.commit()?)
    }

    /// The runs that are looked for, the latest first.
    pub(super) fn search(&self, filter: &Filter) -> Result<Vec<Summary>> {
        let (conditions, mut values) = conditions(filter);
        values.push(Sql::Integer(filter.limit.map_or(-1, i64::from)));
        let question = format!(
            "SELECT {RUN}, score, (SELECT group_concat(word, ',') FROM (SELECT fault_type || ':' || \
             ifnull(injected || effective || removed_clean, '') AS word FROM fault WHERE run = id ORDER BY number)) FROM run WHERE {conditions} ORDER BY started_ms DESC, rowid DESC LIMIT ?"
        );
        let mut statement = self.connection.prepare(&question)?;
        let rows = statement.query_map(params_from_iter(values), |row| {
            let types: Option<String> = row.get(21)?;
            let types = types.unwrap_or_default();
            let words: Vec<_> = types.split(',').filter_map(|word| word.split_once(':')).collect();
            Ok(Summary {
                run: result(row)?,
                owner: owner(row, 19)?,
                digest: row.get(11)?,
                score: row.get(20)?,
                fault_types: words.iter().map(|(kind, _)| (*kind).to_owned()).collect(),
                fates: words
                    .iter()
                    .filter_map(|(kind, bits)| Some(((*kind).to_owned(), fate(bits)?)))
                    .collect(),
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// How often each experiment of each owner ran, also of runs that are no longer kept.
    pub(super) fn totals(&self) -> Result<Vec<((Owner, String), Total)>> {
        let mut statement =
            self.connection.prepare("SELECT owner, runs, successes, unverified, experiment FROM total")?;
        let number = |row: &Row<'_>, index| -> rusqlite::Result<u64> {
            Ok(u64::try_from(row.get::<_, i64>(index)?).unwrap_or_default())
        };
        let rows = statement.query_map([], |row| {
            let (runs, successes, unverified) = (number(row, 1)?, number(row, 2)?, number(row, 3)?);
            Ok(((owner(row, 0)?, row.get(4)?), Total { runs, successes, unverified }))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The latest run of each experiment of each owner.
    pub(super) fn latest(&self) -> Result<Vec<((Owner, String), Latest)>> {
        // Beside max(), SQLite takes the other columns from the row that has it.
        let question = "SELECT experiment, id, started_at, verdict, success, owner, max(started_ms) FROM run GROUP BY owner, experiment";
        let mut statement = self.connection.prepare(question)?;
        let rows = statement.query_map([], |row| {
            let verdict: Option<String> = row.get(3)?;
            let verdict = verdict.as_deref().and_then(Verdict::parse);
            let (run_id, started_at, success) = (row.get(1)?, row.get(2)?, row.get(4)?);
            Ok(((owner(row, 5)?, row.get(0)?), Latest { run_id, started_at, verdict, success }))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The run with this handle, or which alone begins with it.
    pub(super) fn run(&self, handle: &str) -> Result<Found<Recorded>> {
        let question = "SELECT id FROM run WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT 2";
        let mut statement = self.connection.prepare(question)?;
        let ids = statement.query_map([handle], |row| row.get(0))?;
        match ids.collect::<rusqlite::Result<Vec<String>>>()?.as_slice() {
            [] => Ok(Found::Nothing),
            [id] => Ok(Found::One(self.whole(id)?)),
            [id, _] if id == handle => Ok(Found::One(self.whole(id)?)),
            _ => Ok(Found::Several),
        }
    }

    /// When the document with this digest of its stages was run for this owner at which of them, and with which verdict, the oldest first.
    pub(super) fn stages(&self, staged: &str, owner: Owner) -> Result<Vec<(i64, Step)>> {
        let question = "SELECT started_ms, stage, verdict FROM run WHERE staged = ? AND owner = ? AND stage IS NOT NULL \
                        AND verdict IS NOT NULL ORDER BY started_ms, rowid";
        let mut statement = self.connection.prepare(question)?;
        let rows = statement.query_map([staged, &owner.to_string()], |row| {
            let (stage, verdict): (u8, String) = (row.get(1)?, row.get(2)?);
            Ok((row.get(0)?, Stage::try_from(stage).ok().zip(Verdict::parse(&verdict))))
        })?;
        let rows: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
        Ok(rows.into_iter().filter_map(|(began, step)| Some((began, step?))).collect())
    }

    /// Every run, the oldest first.
    pub(super) fn everything(&self) -> Result<Vec<Recorded>> {
        let mut statement = self.connection.prepare("SELECT id FROM run ORDER BY started_ms, rowid")?;
        let ids = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
        ids.iter().map(|id| self.whole(id)).collect()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) -> Result<()> {
        let change = self.connection.transaction()?;
        change.execute_batch("DELETE FROM run; DELETE FROM total; DELETE FROM document;")?;
        Ok(change.commit()?)
    }

    fn whole(&self, id: &str) -> Result<Recorded> {
        let question = format!("SELECT {RUN}, host FROM run WHERE id = ?");
        let mut recorded = self.connection.query_row(&question, [id], |row| {
            let left_out: i64 = row.get(12)?;
            Ok(Recorded {
                run: result(row)?,
                digest: row.get(11)?,
                staged: row.get(16)?,
                owner: row.get(19)?,
                host: row.get(20)?,
                samples_left_out: u64::try_from(left_out).unwrap_or_default(),
                ..Recorded::default()
            })
        })?;
        if let Some(digest) = &recorded.digest {
            let question = "SELECT text FROM document WHERE digest = ?";
            let text: Option<String> =
                self.connection.query_row(question, [digest], |row| row.get(0)).optional()?;
            recorded.document = text.and_then(|text| serde_json::from_str(&text).ok());
        }
        recorded.faults = self.list(id, FAULT, |row| {
            Ok(RunFault {
                name: row.get(0)?,
                fault_type: row.get(1)?,
                target: row.get(2)?,
                seconds: row.get(3)?,
                weight: row.get(4)?,
                injected: row.get(5)?,
                effective: row.get(6)?,
                removed_clean: row.get(7)?,
                evidence: json(row, 8)?,
            })
        })?;
        recorded.events = self.list(id, "SELECT at, time, kind, subject, detail FROM event", |row| {
            Ok(Occurrence {
                at_seconds: row.get(0)?,
                time: row.get(1)?,
                kind: value(row, 2)?,
                subject: row.get(3)?,
                detail: row.get(4)?,
            })
        })?;
        let question =
            "SELECT at, time, probe, role, stage, met, value, took, detail, late, no_data FROM sample";
        recorded.samples = self.list(id, question, |row| {
            Ok(Reading {
                at_seconds: row.get(0)?,
                time: row.get(1)?,
                probe: row.get(2)?,
                role: value(row, 3)?,
                stage: value(row, 4)?,
                met: row.get(5)?,
                value: row.get(6)?,
                took_seconds: row.get(7)?,
                detail: row.get(8)?,
                late_seconds: row.get(9)?,
                no_data: row.get(10)?,
            })
        })?;
        Ok(recorded)
    }

    fn list<T>(
        &self,
        run: &str,
        question: &str,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.connection.prepare(&format!("{question} WHERE run = ? ORDER BY number"))?;
        Ok(statement.query_map([run], |row| read(row))?.collect::<rusqlite::Result<_>>()?)
    }
}

/// A table that should not be there, or one that should.
fn foreign(error: rusqlite::Error) -> Problem {
    let unknown = error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown);
    match unknown || matches!(error, rusqlite::Error::SqlInputError { .. }) {
        true => Problem::Foreign(error),
        false => Problem::Sqlite(error),
    }
}

/// Writes a run down; false when it was there.
fn insert(change: &Transaction<'_>, recorded: &Recorded) -> Result<bool> {
    let run = &recorded.run;
    let began = run.started_at.parse::<jiff::Timestamp>().unwrap_or_default();
    let document = recorded.document.as_ref().map(|document| Value::Object(document.clone()).to_string());
    let new = change.execute(
        "INSERT OR IGNORE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            run.run_id,
            run.experiment_name,
            run.verdict.map(|verdict| verdict.name()),
            run.success,
            run.steady_state_before,
            run.steady_state_after,
            run.duration_seconds,
            run.error,
            run.started_at,
            began.as_millisecond(),
            i64::try_from(run.packets_affected).unwrap_or(i64::MAX),
            run.gate_reaction_seconds,
            recorded.digest,
            i64::try_from(recorded.samples_left_out).unwrap_or(i64::MAX),
            score(recorded).map(|score| score.score),
            run.recovery.as_ref().and_then(|recovery| serde_json::to_string(recovery).ok()),
            run.stage.map(Stage::percent),
            recorded.staged,
            run.next,
            run.failure_mode.map(FailureMode::name),
            run.verified.and_then(|verified| serde_json::to_string(&verified).ok()),
            recorded.owner().to_string(),
            bytes(recorded, document.as_deref()),
            recorded.host,
        ],
    )?;
    if new == 0 {
        return Ok(false);
    }
    if let (Some(digest), Some(document)) = (&recorded.digest, &document) {
        change.execute("INSERT OR IGNORE INTO document VALUES (?, ?)", params![digest, document])?;
    }
    insert_faults(change, recorded)?;
    let mut statement = change.prepare("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    for (number, event) in (0_i64..).zip(&recorded.events) {
        let kind = word(event.kind);
        statement.execute(params![
            run.run_id,
            number,
            event.at_seconds,
            event.time,
            kind,
            event.subject,
            event.detail
        ])?;
    }
    let mut statement =
        change.prepare("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    for (number, sample) in (0_i64..).zip(&recorded.samples) {
        statement.execute(params![
            run.run_id,
            number,
            sample.at_seconds,
            sample.time,
            sample.probe,
            word(sample.role),
            word(sample.stage),
            sample.met,
            sample.value,
            sample.took_seconds,
            sample.detail,
            sample.late_seconds,
            sample.no_data
        ])?;
    }
    Ok(true)
}

/// What a run takes in the file, about. A document that several runs have counts for each.
fn bytes(recorded: &Recorded, document: Option<&str>) -> i64 {
    let document = document.map_or(0, str::len);
    let faults: usize = recorded.faults.iter().map(|fault| 200 + fault.target.len()).sum();
    let events: usize = recorded.events.iter().map(|event| 200 + event.detail.len()).sum();
    let samples: usize = recorded.samples.iter().map(|sample| 200 + sample.detail.len()).sum();
    i64::try_from(1000 + document + faults + events + samples).unwrap_or(i64::MAX)
}

/// Writes the faults of a run down.
fn insert_faults(change: &Transaction<'_>, recorded: &Recorded) -> Result<()> {
    let mut statement = change.prepare("INSERT INTO fault VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    for (number, fault) in (0_i64..).zip(&recorded.faults) {
        statement.execute(params![
            recorded.run.run_id,
            number,
            fault.name,
            fault.fault_type,
            fault.target,
            fault.seconds,
            fault.weight,
            fault.injected,
            fault.effective,
            fault.removed_clean,
            fault.evidence.and_then(|evidence| serde_json::to_string(&evidence).ok()),
        ])?;
    }
    Ok(())
}

/// Counts runs of an experiment.
fn count(change: &Transaction<'_>, owner: &str, experiment: &str, total: Total) -> Result<()> {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let Total { runs, successes, unverified } = total;
    change.execute(
        "INSERT INTO total VALUES (?, ?, ?, ?, ?) ON CONFLICT (owner, experiment) DO UPDATE SET runs = runs + excluded.runs, \
         successes = successes + excluded.successes, unverified = unverified + excluded.unverified",
        params![owner, experiment, number(runs), number(successes), number(unverified)],
    )?;
    Ok(())
}

/// Forgets the oldest runs of whose there are the most, and of everybody those that are too old; the totals go on counting them.
fn prune(change: &Transaction<'_>, owner: &str, retention: Retention) -> Result<()> {
    let most = i64::try_from(retention.bytes).unwrap_or(i64::MAX);
    let share = most / SHARE.cast_signed();
    let mut forgotten = forget(change, owner, "bytes", share)?;
    for (what, most) in [("bytes", most), ("1", i64::from(retention.runs))] {
        let sum = |of: &str| format!("SELECT owner, sum({what}) AS amount FROM run {of}");
        loop {
            let amount: Option<i64> = change.query_row(&sum(""), [], |row| row.get(1))?;
            let excess = amount.unwrap_or_default() - most;
            if excess <= 0 {
                break;
            }
            let most_of_one = sum("GROUP BY owner ORDER BY amount DESC LIMIT 1");
            let (owner, amount): (String, i64) =
                change.query_row(&most_of_one, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let gone = forget(change, &owner, what, amount - excess)?;
            forgotten += gone;
            if gone == 0 {
                break;
            }
        }
    }
    if let Some(days) = retention.days {
        let oldest = jiff::Timestamp::now().as_millisecond() - i64::from(days) * 86_400_000;
        forgotten += change.execute("DELETE FROM run WHERE started_ms < ?", [oldest])?;
    }
    if forgotten > 0 {
        let unused =
            "DELETE FROM document WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.digest = document.digest)";
        change.execute(unused, [])?;
    }
    Ok(())
}

/// Forgets the oldest runs of this user's, so that of what is counted there is no more than `most`. Returns how many.
fn forget(change: &Transaction<'_>, owner: &str, what: &str, most: i64) -> Result<usize> {
    let surplus = format!(
        "DELETE FROM run WHERE rowid IN (SELECT it FROM (SELECT rowid AS it, sum({what}) OVER (ORDER BY started_ms DESC, \
         rowid DESC) AS amount FROM run WHERE owner = ?1) WHERE amount > ?2)"
    );
    Ok(change.execute(&surplus, params![owner, most])?)
}

/// Whose this column says that a run is.
pub(super) fn owner(row: &Row<'_>, column: usize) -> rusqlite::Result<Owner> {
    let words: Option<String> = row.get(column)?;
    Ok(words.as_deref().and_then(Owner::from_words).unwrap_or(Owner::ROOT))
}

fn result(row: &Row<'_>) -> rusqlite::Result<ExperimentResult> {
    let verdict: Option<String> = row.get(2)?;
    let affected: i64 = row.get(9)?;
    let failure: Option<String> = row.get(17)?;
    let stage = |percent: Option<u8>| percent.and_then(|percent| Stage::try_from(percent).ok());
    Ok(ExperimentResult {
        run_id: row.get(0)?,
        experiment_name: row.get(1)?,
        verdict: verdict.as_deref().and_then(Verdict::parse),
        success: row.get(3)?,
        steady_state_before: row.get(4)?,
        steady_state_after: row.get(5)?,
        verified: json(row, 18)?,
        duration_seconds: row.get(6)?,
        error: row.get(7)?,
        failure_mode: failure.as_deref().and_then(FailureMode::parse),
        started_at: row.get(8)?,
        packets_affected: u64::try_from(affected).unwrap_or_default(),
        gate_reaction_seconds: row.get(10)?,
        recovery: json(row, 13)?,
        stage: stage(row.get(14)?),
        next: row.get(15)?,
        left: Vec::new(),
        warning: None,
    })
}

/// What became of a fault, as a search tells it: a digit for each field, or nothing.
fn fate(bits: &str) -> Option<Fate> {
    let [injected, effective, removed_clean] = bits.as_bytes() else { return None };
    let is_set = |bit: &u8| *bit == b'1';
    let (injected, effective, removed_clean) = (is_set(injected), is_set(effective), is_set(removed_clean));
    Some(Fate { injected, effective, removed_clean, evidence: None })
}

/// What stands in this column as JSON; nothing where it is none that is understood.
fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

/// The word that stands for a value.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        other => format!("{other:?}"),
    }
}

/// The value that the word in this column stands for.
fn value<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let word: String = row.get(column)?;
    serde_json::from_value(Value::String(word))
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}
