-- +goose Up

-- Checks that somebody asks a lane for. A request is taken once and ends once.
-- expires_at is RFC 3339 in UTC with whole seconds, so its text sorts by time.
CREATE TABLE check_requests (
    position   INTEGER PRIMARY KEY REFERENCES log (position),
    request_id TEXT NOT NULL UNIQUE,
    expires_at TEXT NOT NULL
) STRICT;

CREATE TABLE check_requests_taken (
    position   INTEGER PRIMARY KEY REFERENCES log (position),
    request_id TEXT NOT NULL UNIQUE REFERENCES check_requests (request_id)
) STRICT;

CREATE TABLE check_request_ends (
    position   INTEGER PRIMARY KEY REFERENCES log (position),
    request_id TEXT NOT NULL UNIQUE REFERENCES check_requests (request_id)
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER check_requests_no_update BEFORE UPDATE ON check_requests BEGIN SELECT RAISE(ABORT, 'check_requests is append-only'); END;
CREATE TRIGGER check_requests_no_delete BEFORE DELETE ON check_requests BEGIN SELECT RAISE(ABORT, 'check_requests is append-only'); END;
CREATE TRIGGER check_requests_no_replace BEFORE INSERT ON check_requests WHEN EXISTS (SELECT 1 FROM check_requests WHERE position = NEW.position OR request_id = NEW.request_id)
BEGIN SELECT RAISE(ABORT, 'check_requests is append-only: duplicate'); END;
CREATE TRIGGER check_requests_taken_no_update BEFORE UPDATE ON check_requests_taken BEGIN SELECT RAISE(ABORT, 'check_requests_taken is append-only'); END;
CREATE TRIGGER check_requests_taken_no_delete BEFORE DELETE ON check_requests_taken BEGIN SELECT RAISE(ABORT, 'check_requests_taken is append-only'); END;
CREATE TRIGGER check_requests_taken_no_replace BEFORE INSERT ON check_requests_taken WHEN EXISTS (SELECT 1 FROM check_requests_taken WHERE position = NEW.position OR request_id = NEW.request_id)
BEGIN SELECT RAISE(ABORT, 'check_requests_taken is append-only: duplicate'); END;
CREATE TRIGGER check_request_ends_no_update BEFORE UPDATE ON check_request_ends BEGIN SELECT RAISE(ABORT, 'check_request_ends is append-only'); END;
CREATE TRIGGER check_request_ends_no_delete BEFORE DELETE ON check_request_ends BEGIN SELECT RAISE(ABORT, 'check_request_ends is append-only'); END;
CREATE TRIGGER check_request_ends_no_replace BEFORE INSERT ON check_request_ends WHEN EXISTS (SELECT 1 FROM check_request_ends WHERE position = NEW.position OR request_id = NEW.request_id)
BEGIN SELECT RAISE(ABORT, 'check_request_ends is append-only: duplicate'); END;
-- +goose StatementEnd
