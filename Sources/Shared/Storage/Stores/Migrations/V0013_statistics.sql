-- What operators look at: the audit by time, and what clients report.

CREATE INDEX delivery_attempts_at ON carillon.delivery_attempts (at);
-- Few rows among many.
CREATE INDEX delivery_attempts_reports ON carillon.delivery_attempts (at) WHERE kind IN ('permission', 'registration');
