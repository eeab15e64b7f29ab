-- +goose Up

-- The log is the truth: one row for each piece of evidence, chained by hash.
-- record is canonical JSON and digest its SHA-256. The unique prev_hash makes
-- a fork of the chain impossible.
CREATE TABLE log (
    position    INTEGER PRIMARY KEY CHECK (position > 0),
    kind        TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    digest      TEXT NOT NULL,
    prev_hash   TEXT NOT NULL UNIQUE,
    hash        TEXT NOT NULL UNIQUE,
    record      TEXT NOT NULL
) STRICT;

-- Larger bytes (envelopes, ledgers, policy files), by their SHA-256.
CREATE TABLE blobs (
    sha256 TEXT NOT NULL PRIMARY KEY,
    data   BLOB NOT NULL
) STRICT;

-- The tables below index the log: what a record can be found by.

-- device and inode are unsigned decimal numbers.
CREATE TABLE repositories (
    position      INTEGER PRIMARY KEY REFERENCES log (position),
    repository_id TEXT NOT NULL,
    path          TEXT NOT NULL,
    device        TEXT NOT NULL,
    inode         TEXT NOT NULL
) STRICT;
CREATE INDEX repositories_place ON repositories (path, device, inode, position);

CREATE TABLE lanes (
    position INTEGER PRIMARY KEY REFERENCES log (position),
    key_id   TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE lane_revocations (
    position INTEGER PRIMARY KEY REFERENCES log (position),
    key_id   TEXT NOT NULL REFERENCES lanes (key_id)
) STRICT;

CREATE TABLE tokens (
    position   INTEGER PRIMARY KEY REFERENCES log (position),
    token_hash TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE token_revocations (
    position   INTEGER PRIMARY KEY REFERENCES log (position),
    token_hash TEXT NOT NULL REFERENCES tokens (token_hash)
) STRICT;

CREATE TABLE opened (
    position        INTEGER PRIMARY KEY REFERENCES log (position),
    name            TEXT NOT NULL UNIQUE,
    repository_id   TEXT NOT NULL,
    envelope_sha256 TEXT NOT NULL REFERENCES blobs (sha256)
) STRICT;
CREATE INDEX opened_repository ON opened (repository_id, position);

CREATE TABLE receipts (
    position        INTEGER PRIMARY KEY REFERENCES log (position),
    seal            TEXT NOT NULL UNIQUE,
    prev_seal       TEXT NOT NULL,
    repository_id   TEXT NOT NULL,
    run_id          TEXT NOT NULL,
    check_digest    TEXT NOT NULL,
    envelope_sha256 TEXT NOT NULL REFERENCES blobs (sha256)
) STRICT;
CREATE INDEX receipts_repository ON receipts (repository_id, position);
CREATE INDEX receipts_prev ON receipts (prev_seal);
CREATE INDEX receipts_check ON receipts (repository_id, check_digest, position);

-- A ledger names the one before it, so two writers cannot both follow one.
CREATE TABLE ledgers (
    position        INTEGER PRIMARY KEY REFERENCES log (position),
    repository_id   TEXT NOT NULL,
    run_id          TEXT NOT NULL,
    prev_seal       TEXT NOT NULL,
    document_sha256 TEXT NOT NULL REFERENCES blobs (sha256),
    UNIQUE (repository_id, run_id, prev_seal)
) STRICT;
CREATE INDEX ledgers_run ON ledgers (repository_id, run_id, position);

CREATE TABLE policies (
    position        INTEGER PRIMARY KEY REFERENCES log (position),
    repository_id   TEXT NOT NULL,
    document_sha256 TEXT NOT NULL REFERENCES blobs (sha256)
) STRICT;
CREATE INDEX policies_repository ON policies (repository_id, position);

-- At most one attestation of the same bytes for the same check and repository
-- is active: one is the first, and every other replaces one of them that was
-- revoked and that no other replaces. So of n, at least n - 1 are revoked.
CREATE TABLE attestations (
    position       INTEGER PRIMARY KEY REFERENCES log (position),
    repository_id  TEXT NOT NULL,
    check_digest   TEXT NOT NULL,
    closure_sha256 TEXT NOT NULL,
    replaces       INTEGER UNIQUE REFERENCES attestation_revocations (attestation),
    UNIQUE (position, repository_id, check_digest, closure_sha256),
    FOREIGN KEY (replaces, repository_id, check_digest, closure_sha256)
        REFERENCES attestations (position, repository_id, check_digest, closure_sha256)
) STRICT;
CREATE INDEX attestations_repository ON attestations (repository_id, position);
CREATE UNIQUE INDEX attestations_first ON attestations (repository_id, check_digest, closure_sha256) WHERE replaces IS NULL;

CREATE TABLE attestation_revocations (
    position      INTEGER PRIMARY KEY REFERENCES log (position),
    repository_id TEXT NOT NULL,
    attestation   INTEGER NOT NULL UNIQUE REFERENCES attestations (position)
) STRICT;
CREATE INDEX attestation_revocations_repository ON attestation_revocations (repository_id, position);

CREATE TABLE explanations (
    position      INTEGER PRIMARY KEY REFERENCES log (position),
    repository_id TEXT NOT NULL
) STRICT;
CREATE INDEX explanations_repository ON explanations (repository_id, position);

-- Every table is append-only. The insert triggers are there because INSERT OR
-- REPLACE deletes the row in its way without asking a delete trigger.
-- +goose StatementBegin
CREATE TRIGGER log_no_update BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'log is append-only'); END;
CREATE TRIGGER log_no_delete BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'log is append-only'); END;
CREATE TRIGGER log_no_replace BEFORE INSERT ON log WHEN EXISTS (SELECT 1 FROM log WHERE position = NEW.position OR prev_hash = NEW.prev_hash OR hash = NEW.hash)
BEGIN SELECT RAISE(ABORT, 'log is append-only: duplicate'); END;
CREATE TRIGGER blobs_no_update BEFORE UPDATE ON blobs BEGIN SELECT RAISE(ABORT, 'blobs is append-only'); END;
CREATE TRIGGER blobs_no_delete BEFORE DELETE ON blobs BEGIN SELECT RAISE(ABORT, 'blobs is append-only'); END;
CREATE TRIGGER blobs_no_replace BEFORE INSERT ON blobs WHEN EXISTS (SELECT 1 FROM blobs WHERE sha256 = NEW.sha256)
BEGIN SELECT RAISE(ABORT, 'blobs is append-only: duplicate'); END;
CREATE TRIGGER repositories_no_update BEFORE UPDATE ON repositories BEGIN SELECT RAISE(ABORT, 'repositories is append-only'); END;
CREATE TRIGGER repositories_no_delete BEFORE DELETE ON repositories BEGIN SELECT RAISE(ABORT, 'repositories is append-only'); END;
CREATE TRIGGER repositories_no_replace BEFORE INSERT ON repositories WHEN EXISTS (SELECT 1 FROM repositories WHERE position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'repositories is append-only: duplicate'); END;
CREATE TRIGGER lanes_no_update BEFORE UPDATE ON lanes BEGIN SELECT RAISE(ABORT, 'lanes is append-only'); END;
CREATE TRIGGER lanes_no_delete BEFORE DELETE ON lanes BEGIN SELECT RAISE(ABORT, 'lanes is append-only'); END;
CREATE TRIGGER lanes_no_replace BEFORE INSERT ON lanes WHEN EXISTS (SELECT 1 FROM lanes WHERE position = NEW.position OR key_id = NEW.key_id)
BEGIN SELECT RAISE(ABORT, 'lanes is append-only: duplicate'); END;
CREATE TRIGGER lane_revocations_no_update BEFORE UPDATE ON lane_revocations BEGIN SELECT RAISE(ABORT, 'lane_revocations is append-only'); END;
CREATE TRIGGER lane_revocations_no_delete BEFORE DELETE ON lane_revocations BEGIN SELECT RAISE(ABORT, 'lane_revocations is append-only'); END;
CREATE TRIGGER lane_revocations_no_replace BEFORE INSERT ON lane_revocations WHEN EXISTS (SELECT 1 FROM lane_revocations WHERE position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'lane_revocations is append-only: duplicate'); END;
CREATE TRIGGER tokens_no_update BEFORE UPDATE ON tokens BEGIN SELECT RAISE(ABORT, 'tokens is append-only'); END;
CREATE TRIGGER tokens_no_delete BEFORE DELETE ON tokens BEGIN SELECT RAISE(ABORT, 'tokens is append-only'); END;
CREATE TRIGGER tokens_no_replace BEFORE INSERT ON tokens WHEN EXISTS (SELECT 1 FROM tokens WHERE position = NEW.position OR token_hash = NEW.token_hash)
BEGIN SELECT RAISE(ABORT, 'tokens is append-only: duplicate'); END;
CREATE TRIGGER token_revocations_no_update BEFORE UPDATE ON token_revocations BEGIN SELECT RAISE(ABORT, 'token_revocations is append-only'); END;
CREATE TRIGGER token_revocations_no_delete BEFORE DELETE ON token_revocations BEGIN SELECT RAISE(ABORT, 'token_revocations is append-only'); END;
CREATE TRIGGER token_revocations_no_replace BEFORE INSERT ON token_revocations WHEN EXISTS (SELECT 1 FROM token_revocations WHERE position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'token_revocations is append-only: duplicate'); END;
CREATE TRIGGER opened_no_update BEFORE UPDATE ON opened BEGIN SELECT RAISE(ABORT, 'opened is append-only'); END;
CREATE TRIGGER opened_no_delete BEFORE DELETE ON opened BEGIN SELECT RAISE(ABORT, 'opened is append-only'); END;
CREATE TRIGGER opened_no_replace BEFORE INSERT ON opened WHEN EXISTS (SELECT 1 FROM opened WHERE position = NEW.position OR name = NEW.name)
BEGIN SELECT RAISE(ABORT, 'opened is append-only: duplicate'); END;
CREATE TRIGGER receipts_no_update BEFORE UPDATE ON receipts BEGIN SELECT RAISE(ABORT, 'receipts is append-only'); END;
CREATE TRIGGER receipts_no_delete BEFORE DELETE ON receipts BEGIN SELECT RAISE(ABORT, 'receipts is append-only'); END;
CREATE TRIGGER receipts_no_replace BEFORE INSERT ON receipts WHEN EXISTS (SELECT 1 FROM receipts WHERE position = NEW.position OR seal = NEW.seal)
BEGIN SELECT RAISE(ABORT, 'receipts is append-only: duplicate'); END;
CREATE TRIGGER ledgers_no_update BEFORE UPDATE ON ledgers BEGIN SELECT RAISE(ABORT, 'ledgers is append-only'); END;
CREATE TRIGGER ledgers_no_delete BEFORE DELETE ON ledgers BEGIN SELECT RAISE(ABORT, 'ledgers is append-only'); END;
CREATE TRIGGER ledgers_no_replace BEFORE INSERT ON ledgers WHEN EXISTS (SELECT 1 FROM ledgers WHERE position = NEW.position OR (repository_id = NEW.repository_id AND run_id = NEW.run_id AND prev_seal = NEW.prev_seal))
BEGIN SELECT RAISE(ABORT, 'ledgers is append-only: duplicate'); END;
CREATE TRIGGER policies_no_update BEFORE UPDATE ON policies BEGIN SELECT RAISE(ABORT, 'policies is append-only'); END;
CREATE TRIGGER policies_no_delete BEFORE DELETE ON policies BEGIN SELECT RAISE(ABORT, 'policies is append-only'); END;
CREATE TRIGGER policies_no_replace BEFORE INSERT ON policies WHEN EXISTS (SELECT 1 FROM policies WHERE position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'policies is append-only: duplicate'); END;
CREATE TRIGGER attestations_no_update BEFORE UPDATE ON attestations BEGIN SELECT RAISE(ABORT, 'attestations is append-only'); END;
CREATE TRIGGER attestations_no_delete BEFORE DELETE ON attestations BEGIN SELECT RAISE(ABORT, 'attestations is append-only'); END;
CREATE TRIGGER attestations_no_replace BEFORE INSERT ON attestations WHEN EXISTS (SELECT 1 FROM attestations WHERE position = NEW.position OR replaces = NEW.replaces
    OR (replaces IS NULL AND NEW.replaces IS NULL AND repository_id = NEW.repository_id AND check_digest = NEW.check_digest AND closure_sha256 = NEW.closure_sha256))
BEGIN SELECT RAISE(ABORT, 'attestations is append-only: duplicate'); END;
CREATE TRIGGER attestation_revocations_no_update BEFORE UPDATE ON attestation_revocations BEGIN SELECT RAISE(ABORT, 'attestation_revocations is append-only'); END;
CREATE TRIGGER attestation_revocations_no_delete BEFORE DELETE ON attestation_revocations BEGIN SELECT RAISE(ABORT, 'attestation_revocations is append-only'); END;
CREATE TRIGGER attestation_revocations_no_replace BEFORE INSERT ON attestation_revocations WHEN EXISTS (SELECT 1 FROM attestation_revocations WHERE position = NEW.position OR attestation = NEW.attestation)
BEGIN SELECT RAISE(ABORT, 'attestation_revocations is append-only: duplicate'); END;
CREATE TRIGGER explanations_no_update BEFORE UPDATE ON explanations BEGIN SELECT RAISE(ABORT, 'explanations is append-only'); END;
CREATE TRIGGER explanations_no_delete BEFORE DELETE ON explanations BEGIN SELECT RAISE(ABORT, 'explanations is append-only'); END;
CREATE TRIGGER explanations_no_replace BEFORE INSERT ON explanations WHEN EXISTS (SELECT 1 FROM explanations WHERE position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'explanations is append-only: duplicate'); END;
-- +goose StatementEnd
