//! What a filter asks for, in SQL.

use rusqlite::types::Value as Sql;

use super::Filter;

/// What a filter asks for, and the values in it.
pub(super) fn conditions(filter: &Filter) -> (String, Vec<Sql>) {
    let mut conditions = vec!["1".to_owned()];
    let mut values = Vec::new();
    let mut add = |condition: &str, more: Vec<Sql>| {
        conditions.push(condition.to_owned());
        values.extend(more);
    };
    if let Some(experiments) = &filter.experiment {
        let any = vec!["owner = ? AND experiment = ?"; experiments.len()].join(" OR ");
        let names = experiments.iter().flat_map(|(owner, name)| [owner.to_string(), name.clone()]);
        add(&format!("({any})"), names.map(Sql::Text).collect());
    }
    if let Some(owner) = filter.owner {
        add("owner = ?", vec![Sql::Text(owner.to_string())]);
    }
    if let Some(verdict) = filter.verdict {
        add("verdict = ?", vec![Sql::Text(verdict.name().to_owned())]);
    }
    if let Some(fault) = &filter.fault {
        let fault = Sql::Text(fault.clone());
        let either = "EXISTS (SELECT 1 FROM fault WHERE run = id AND (fault_type = ? OR name = ?))";
        add(either, vec![fault.clone(), fault]);
    }
    if let Some(target) = &filter.target {
        let has = "EXISTS (SELECT 1 FROM fault WHERE run = id AND target LIKE ? ESCAPE '\\')";
        add(has, vec![within(target)]);
    }
    if let Some(text) = &filter.text {
        let text = within(text);
        let anywhere = "(experiment LIKE ? ESCAPE '\\' OR error LIKE ? ESCAPE '\\' OR EXISTS (SELECT 1 FROM event \
                        WHERE run = id AND (detail LIKE ? ESCAPE '\\' OR subject LIKE ? ESCAPE '\\')))";
        add(anywhere, vec![text.clone(), text.clone(), text.clone(), text]);
    }
    if let Some(since) = filter.since {
        add("started_ms >= ?", vec![Sql::Integer(since.as_millisecond())]);
    }
    if let Some(until) = filter.until {
        add("started_ms < ?", vec![Sql::Integer(until.as_millisecond())]);
    }
    (conditions.join(" AND "), values)
}

/// A pattern for text that has this in it, whatever signs it is of.
fn within(text: &str) -> Sql {
    let plain = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    Sql::Text(format!("%{plain}%"))
}
