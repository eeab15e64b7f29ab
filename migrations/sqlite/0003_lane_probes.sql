-- +goose Up

-- What a probe of a lane's host found. The newest of a lane counts.
CREATE TABLE lane_probes (
    position INTEGER PRIMARY KEY REFERENCES log (position),
    lane_id  TEXT NOT NULL
) STRICT;
CREATE INDEX lane_probes_lane ON lane_probes (lane_id, position);

-- +goose StatementBegin
CREATE TRIGGER lane_probes_no_update BEFORE UPDATE ON lane_probes BEGIN SELECT RAISE(ABORT, 'lane_probes is append-only'); END;
CREATE TRIGGER lane_probes_no_delete BEFORE DELETE ON lane_probes BEGIN SELECT RAISE(ABORT, 'lane_probes is append-only'); END;
CREATE TRIGGER lane_probes_no_replace BEFORE INSERT ON lane_probes WHEN EXISTS (SELECT 1 FROM lane_probes WHERE position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'lane_probes is append-only: duplicate'); END;
-- +goose StatementEnd
