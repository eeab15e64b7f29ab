-- +goose Up

-- What each table is for stands in the file of the same name for SQLite.

CREATE TABLE check_requests (
    position   BIGINT PRIMARY KEY REFERENCES log (position),
    request_id TEXT COLLATE "C" NOT NULL UNIQUE,
    expires_at TEXT COLLATE "C" NOT NULL
);

CREATE TABLE check_requests_taken (
    position   BIGINT PRIMARY KEY REFERENCES log (position),
    request_id TEXT COLLATE "C" NOT NULL UNIQUE REFERENCES check_requests (request_id)
);

CREATE TABLE check_request_ends (
    position   BIGINT PRIMARY KEY REFERENCES log (position),
    request_id TEXT COLLATE "C" NOT NULL UNIQUE REFERENCES check_requests (request_id)
);

-- +goose StatementBegin
DO $$
DECLARE name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['check_requests', 'check_requests_taken', 'check_request_ends']
    LOOP
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION append_only()', name);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER append_only', name);
    END LOOP;
END $$;
-- +goose StatementEnd
