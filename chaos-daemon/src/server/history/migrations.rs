//! The tables of the history.

/// What makes each version of the database of the one before; `user_version` says which it is.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE run (
        id TEXT PRIMARY KEY,
        experiment TEXT NOT NULL,
        verdict TEXT,
        success INTEGER NOT NULL,
        steady_before INTEGER NOT NULL,
        steady_after INTEGER NOT NULL,
        seconds REAL NOT NULL,
        error TEXT,
        started_at TEXT NOT NULL,
        started_ms INTEGER NOT NULL,
        affected INTEGER NOT NULL,
        gate_reaction REAL,
        digest TEXT,
        samples_left_out INTEGER NOT NULL
    );
    CREATE INDEX run_started ON run (started_ms);
    CREATE INDEX run_experiment ON run (experiment, started_ms);
    CREATE TABLE fault (
        run TEXT NOT NULL REFERENCES run ON DELETE CASCADE,
        number INTEGER NOT NULL,
        name TEXT NOT NULL,
        fault_type TEXT NOT NULL,
        target TEXT NOT NULL,
        seconds REAL NOT NULL,
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID;
    CREATE TABLE event (
        run TEXT NOT NULL REFERENCES run ON DELETE CASCADE,
        number INTEGER NOT NULL,
        at REAL NOT NULL,
        time TEXT NOT NULL,
        kind TEXT NOT NULL,
        subject TEXT NOT NULL,
        detail TEXT NOT NULL,
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID;
    CREATE TABLE sample (
        run TEXT NOT NULL REFERENCES run ON DELETE CASCADE,
        number INTEGER NOT NULL,
        at REAL NOT NULL,
        time TEXT NOT NULL,
        probe TEXT NOT NULL,
        role TEXT NOT NULL,
        stage TEXT NOT NULL,
        met INTEGER NOT NULL,
        value REAL,
        took REAL NOT NULL,
        detail TEXT NOT NULL,
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID;
    CREATE TABLE document (digest TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE total (
        experiment TEXT PRIMARY KEY,
        runs INTEGER NOT NULL,
        successes INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE imported (what TEXT PRIMARY KEY) WITHOUT ROWID;
    ",
    "ALTER TABLE run ADD COLUMN score INTEGER;",
    "ALTER TABLE run ADD COLUMN recovery TEXT;",
    "
    ALTER TABLE run ADD COLUMN stage INTEGER;
    ALTER TABLE run ADD COLUMN staged TEXT;
    ALTER TABLE run ADD COLUMN next TEXT;
    CREATE INDEX run_staged ON run (staged, started_ms) WHERE staged IS NOT NULL;
    ",
    "ALTER TABLE sample ADD COLUMN late REAL;",
    "ALTER TABLE fault ADD COLUMN weight INTEGER NOT NULL DEFAULT 10;",
    "ALTER TABLE run ADD COLUMN failure_mode TEXT;",
    "
    ALTER TABLE fault ADD COLUMN injected INTEGER;
    ALTER TABLE fault ADD COLUMN effective INTEGER;
    ALTER TABLE fault ADD COLUMN removed_clean INTEGER;
    ",
    "ALTER TABLE run ADD COLUMN verified TEXT;",
    "
    ALTER TABLE run ADD COLUMN owner TEXT;
    ALTER TABLE run ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX run_owner ON run (owner, started_ms, bytes);
    UPDATE run SET bytes = 1000
        + ifnull((SELECT sum(200 + length(detail)) FROM event WHERE run = id), 0)
        + ifnull((SELECT sum(200 + length(detail)) FROM sample WHERE run = id), 0)
        + ifnull((SELECT length(text) FROM document WHERE document.digest = run.digest), 0);
    ",
    "
    ALTER TABLE fault ADD COLUMN evidence TEXT;
    ALTER TABLE total ADD COLUMN unverified INTEGER NOT NULL DEFAULT 0;
    UPDATE total SET unverified =
        (SELECT count(*) FROM run WHERE run.experiment = total.experiment AND run.verdict = 'unverified');
    ",
    // What is nobody's is root's, also of the totals what is of no run that is still there.
    "
    UPDATE run SET owner = 'uid 0' WHERE owner IS NULL;
    CREATE TABLE owned_total (
        owner TEXT NOT NULL,
        experiment TEXT NOT NULL,
        runs INTEGER NOT NULL,
        successes INTEGER NOT NULL,
        unverified INTEGER NOT NULL,
        PRIMARY KEY (owner, experiment)
    ) WITHOUT ROWID;
    INSERT INTO owned_total SELECT owner, experiment, count(*), sum(success), count(*) FILTER (WHERE verdict = 'unverified')
        FROM run WHERE owner <> 'uid 0' GROUP BY owner, experiment;
    INSERT INTO owned_total SELECT 'uid 0', experiment,
        max(0, runs - ifnull((SELECT sum(runs) FROM owned_total WHERE experiment = total.experiment), 0)),
        max(0, successes - ifnull((SELECT sum(successes) FROM owned_total WHERE experiment = total.experiment), 0)),
        max(0, unverified - ifnull((SELECT sum(unverified) FROM owned_total WHERE experiment = total.experiment), 0))
        FROM total;
    DELETE FROM owned_total WHERE runs = 0;
    DROP TABLE total;
    ALTER TABLE owned_total RENAME TO total;
    ",
    "ALTER TABLE sample ADD COLUMN no_data INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE run ADD COLUMN host TEXT;",
];
