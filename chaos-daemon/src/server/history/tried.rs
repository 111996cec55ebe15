//! Runs with what their faults were aimed at: for advice about what was tried, and what was not.

use rusqlite::Row;

use super::History;
use super::database::{self, Database};
use crate::experiment::recovery::Recovery;
use crate::experiment::{Stage, Verdict};
use crate::request::ApiError;
use crate::spec::{Owner, TargetRequest};

/// How many of the latest runs are looked at.
const MOST: u32 = 2000;

/// A run, and what its faults were aimed at.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    /// Handle.
    pub run_id: String,
    /// Name of the experiment, as the viewer writes it.
    pub experiment: String,
    /// When it began, in milliseconds since 1970.
    pub started_ms: i64,
    /// The last word on it.
    pub verdict: Option<Verdict>,
    /// At which stage it was.
    pub stage: Option<Stage>,
    /// Whether an alert that has to fire was seen to.
    pub alerted: bool,
    /// Its faults: type and target.
    pub faults: Vec<(String, TargetRequest)>,
}

impl History {
    /// The latest runs with faults of which `viewer` may see everything, the oldest first.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub async fn tried(&self, viewer: Owner) -> Result<Vec<Past>, ApiError> {
        let asked = self.blocking(move |shared| shared.all(|database| tried(database, viewer)));
        let mut found = asked.await?;
        found.sort_by_key(|run| run.started_ms);
        Ok(found)
    }
}

fn tried(database: &Database, viewer: Owner) -> database::Result<Vec<Past>> {
    let question = "SELECT id, experiment, owner, started_ms, verdict, stage, recovery, (SELECT json_group_array(json_array(fault_type, \
                    target)) FROM fault WHERE run = id) FROM run WHERE (?1 OR owner = ?2) AND EXISTS (SELECT 1 FROM fault WHERE run = id) \
                    ORDER BY started_ms DESC, rowid DESC LIMIT ?3";
    let mut statement = database.connection.prepare(question)?;
    let values = rusqlite::params![viewer.is_root(), viewer.to_string(), MOST];
    let rows = statement.query_map(values, |row| past(row, viewer))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn past(row: &Row<'_>, viewer: Owner) -> rusqlite::Result<Past> {
    let (name, verdict, stage, recovery, faults): (
        String,
        Option<String>,
        Option<u8>,
        Option<String>,
        String,
    ) = (row.get(1)?, row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?);
    let recovery = recovery.and_then(|text| serde_json::from_str::<Recovery>(&text).ok());
    let alerts = recovery.map(|recovery| recovery.alerts).unwrap_or_default();
    // What is not understood any more is of no use.
    let faults: Vec<(String, String)> = serde_json::from_str(&faults).unwrap_or_default();
    let fault =
        |(kind, target): (String, String)| Some((kind, serde_json::from_str::<TargetRequest>(&target).ok()?));
    Ok(Past {
        run_id: row.get(0)?,
        experiment: database::owner(row, 2)?.name_for(viewer, &name),
        started_ms: row.get(3)?,
        verdict: verdict.as_deref().and_then(Verdict::parse),
        stage: stage.and_then(|percent| Stage::try_from(percent).ok()),
        alerted: alerts.iter().any(|alarm| alarm.fired_after_seconds.is_some() && alarm.finding.is_none()),
        faults: faults.into_iter().filter_map(fault).collect(),
    })
}
