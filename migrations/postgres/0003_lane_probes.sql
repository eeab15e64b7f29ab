-- +goose Up

CREATE TABLE lane_probes (
    position BIGINT PRIMARY KEY REFERENCES log (position),
    lane_id  TEXT COLLATE "C" NOT NULL
);
CREATE INDEX lane_probes_lane ON lane_probes (lane_id, position);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON lane_probes FOR EACH STATEMENT EXECUTE FUNCTION append_only();
ALTER TABLE lane_probes ENABLE ALWAYS TRIGGER append_only;
