-- +goose Up

-- What each table is for stands in the file of the same name for SQLite. Text
-- has COLLATE "C": what is compared is bytes, and no index depends on the
-- system's C library.

CREATE TABLE log (
    position    BIGINT PRIMARY KEY CHECK (position > 0),
    kind        TEXT COLLATE "C" NOT NULL,
    recorded_at TEXT COLLATE "C" NOT NULL,
    digest      TEXT COLLATE "C" NOT NULL,
    prev_hash   TEXT COLLATE "C" NOT NULL UNIQUE,
    hash        TEXT COLLATE "C" NOT NULL UNIQUE,
    record      TEXT COLLATE "C" NOT NULL
);

CREATE TABLE blobs (
    sha256 TEXT COLLATE "C" PRIMARY KEY,
    data   BYTEA NOT NULL
);

-- A path may be longer than an entry of a B-tree; a hash index has no limit.
CREATE TABLE repositories (
    position      BIGINT PRIMARY KEY REFERENCES log (position),
    repository_id TEXT COLLATE "C" NOT NULL,
    path          TEXT COLLATE "C" NOT NULL,
    device        TEXT COLLATE "C" NOT NULL,
    inode         TEXT COLLATE "C" NOT NULL
);
CREATE INDEX repositories_path ON repositories USING hash (path);

CREATE TABLE lanes (
    position BIGINT PRIMARY KEY REFERENCES log (position),
    key_id   TEXT COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE lane_revocations (
    position BIGINT PRIMARY KEY REFERENCES log (position),
    key_id   TEXT COLLATE "C" NOT NULL REFERENCES lanes (key_id)
);

CREATE TABLE tokens (
    position   BIGINT PRIMARY KEY REFERENCES log (position),
    token_hash TEXT COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE token_revocations (
    position   BIGINT PRIMARY KEY REFERENCES log (position),
    token_hash TEXT COLLATE "C" NOT NULL REFERENCES tokens (token_hash)
);

CREATE TABLE opened (
    position        BIGINT PRIMARY KEY REFERENCES log (position),
    name            TEXT COLLATE "C" NOT NULL UNIQUE,
    repository_id   TEXT COLLATE "C" NOT NULL,
    envelope_sha256 TEXT COLLATE "C" NOT NULL REFERENCES blobs (sha256)
);
CREATE INDEX opened_repository ON opened (repository_id, position);

CREATE TABLE receipts (
    position        BIGINT PRIMARY KEY REFERENCES log (position),
    seal            TEXT COLLATE "C" NOT NULL UNIQUE,
    prev_seal       TEXT COLLATE "C" NOT NULL,
    repository_id   TEXT COLLATE "C" NOT NULL,
    run_id          TEXT COLLATE "C" NOT NULL,
    check_digest    TEXT COLLATE "C" NOT NULL,
    envelope_sha256 TEXT COLLATE "C" NOT NULL REFERENCES blobs (sha256)
);
CREATE INDEX receipts_repository ON receipts (repository_id, position);
CREATE INDEX receipts_prev ON receipts (prev_seal);
CREATE INDEX receipts_check ON receipts (repository_id, check_digest, position);

CREATE TABLE ledgers (
    position        BIGINT PRIMARY KEY REFERENCES log (position),
    repository_id   TEXT COLLATE "C" NOT NULL,
    run_id          TEXT COLLATE "C" NOT NULL,
    prev_seal       TEXT COLLATE "C" NOT NULL,
    document_sha256 TEXT COLLATE "C" NOT NULL REFERENCES blobs (sha256),
    UNIQUE (repository_id, run_id, prev_seal)
);
CREATE INDEX ledgers_run ON ledgers (repository_id, run_id, position);

CREATE TABLE policies (
    position        BIGINT PRIMARY KEY REFERENCES log (position),
    repository_id   TEXT COLLATE "C" NOT NULL,
    document_sha256 TEXT COLLATE "C" NOT NULL REFERENCES blobs (sha256)
);
CREATE INDEX policies_repository ON policies (repository_id, position);

CREATE TABLE attestations (
    position       BIGINT PRIMARY KEY REFERENCES log (position),
    repository_id  TEXT COLLATE "C" NOT NULL,
    check_digest   TEXT COLLATE "C" NOT NULL,
    closure_sha256 TEXT COLLATE "C" NOT NULL,
    replaces       BIGINT UNIQUE,
    UNIQUE (position, repository_id, check_digest, closure_sha256)
);
CREATE INDEX attestations_repository ON attestations (repository_id, position);

CREATE TABLE attestation_revocations (
    position      BIGINT PRIMARY KEY REFERENCES log (position),
    repository_id TEXT COLLATE "C" NOT NULL,
    attestation   BIGINT NOT NULL UNIQUE REFERENCES attestations (position)
);
CREATE INDEX attestation_revocations_repository ON attestation_revocations (repository_id, position);

CREATE UNIQUE INDEX attestations_first ON attestations (repository_id, check_digest, closure_sha256) WHERE replaces IS NULL;
ALTER TABLE attestations
    ADD FOREIGN KEY (replaces) REFERENCES attestation_revocations (attestation),
    ADD FOREIGN KEY (replaces, repository_id, check_digest, closure_sha256)
        REFERENCES attestations (position, repository_id, check_digest, closure_sha256);

CREATE TABLE explanations (
    position      BIGINT PRIMARY KEY REFERENCES log (position),
    repository_id TEXT COLLATE "C" NOT NULL
);
CREATE INDEX explanations_repository ON explanations (repository_id, position);

-- Every table is append-only, also for the owner and in a session that
-- replays replicated rows. A trigger for the statement sees INSERT … ON
-- CONFLICT DO UPDATE and MERGE too.
-- +goose StatementBegin
CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'object_not_in_prerequisite_state';
END $$;

DO $$
DECLARE name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['log', 'blobs', 'repositories', 'lanes', 'lane_revocations', 'tokens', 'token_revocations', 'opened',
        'receipts', 'ledgers', 'policies', 'attestations', 'attestation_revocations', 'explanations']
    LOOP
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION append_only()', name);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER append_only', name);
    END LOOP;
END $$;
-- +goose StatementEnd
