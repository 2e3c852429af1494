// Carillon · ScheduleSQL.swift
// SPDX-License-Identifier: Apache-2.0

/// The statements of ``ScheduleStore`` that are longer than a line or two.
package enum ScheduleSQL {
    static let add = ScheduleColumns.insert + " ON CONFLICT DO NOTHING RETURNING id"

    /// $18: the organisation, $19: how many it may have.
    static let put =
        ScheduleColumns.insert + """

             WHERE (SELECT count(*) FROM (
                SELECT FROM carillon.schedules WHERE org_id = $18 AND source = 'api' LIMIT $19
            ) own) < $19
            ON CONFLICT DO NOTHING
            """

    static let content = "SELECT content FROM carillon.schedules WHERE id = $1"

    /// Which of those that were to be added have the id of a job that was scheduled with other content.
    static let conflicts = """
        SELECT (n.place - 1)::int4
        FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS n (id, org_id, job_id, part, content, place)
        JOIN carillon.schedules s ON s.org_id = n.org_id AND s.job_id = n.job_id AND s.part = n.part AND s.cron IS NULL
        WHERE n.job_id IS NOT NULL AND s.content <> n.content
        """

    /// $1: ids of what was added, of which some may belong to a job that was cancelled before.
    static let wakeCancelled = """
        UPDATE carillon.schedules s SET wake_at = now()
        WHERE s.id = ANY($1) AND s.cron IS NULL AND s.attempts = 0 AND s.wake_at > now() AND EXISTS (
            SELECT FROM carillon.cancellations c WHERE c.org_id = s.org_id
                AND c.job_id = ANY (ARRAY[s.job_id, s.source, split_part(s.source, '/', 2)])
        )
        """

    /// Tells the first claim from later ones, and no more: what is claimed with others may never have its turn.
    ///
    /// $1: lane, $2: now, $3: until when.
    package static let claim = """
        UPDATE carillon.schedules s
        SET wake_at = $3, attempts = CASE s.attempts WHEN 0 THEN 1 ELSE greatest(s.attempts, 2) END
        WHERE s.id = ANY(ARRAY(
            SELECT id FROM carillon.schedules WHERE lane = $1 AND wake_at <= $2
            ORDER BY wake_at LIMIT \(ScheduleStore.claimSize) FOR UPDATE SKIP LOCKED
        ))
        RETURNING \(ScheduleColumns.list)
        """

    /// $1: id, $2: how it stood when it was claimed.
    static let beginAlone = """
        UPDATE carillon.schedules SET attempts = least($2 + 1, 30000)::smallint WHERE id = $1
        """

    static let advance = """
        UPDATE carillon.schedules s SET due_at = n.due, wake_at = n.wake, wall_day = n.day, wall_minutes = n.minutes,
            last_fired_at = coalesce(n.fired, s.last_fired_at),
            attempts = CASE WHEN n.wake > n.due THEN s.attempts ELSE 0 END
        FROM unnest($1, $2, $3, $4, $5, $6, $7) AS n (id, was, due, day, minutes, fired, wake)
        WHERE s.id = n.id AND s.due_at = n.was AND s.state = 'waiting'
        RETURNING s.id
        """

    /// $1: the last id, $2: now, $3: limit.
    static let zoned = """
        SELECT \(ScheduleColumns.list) FROM carillon.schedules s
        WHERE s.zone IS NOT NULL AND s.zone <> 'recipient' AND s.id > $1 AND (s.due_at > $2 OR s.state = 'failed')
        ORDER BY s.id LIMIT $3
        """

    /// $1: organisation, $2: a job's ids, $3: entries.
    static let count = """
        SELECT (SELECT count(*) FROM carillon.schedules WHERE org_id = $1 AND job_id = ANY($2) AND cron IS NULL)
            + (SELECT count(*) FROM carillon.schedules
                WHERE org_id = $1 AND source = ANY($3) AND job_id IS NULL AND source <> 'api')
        """

    /// $1: the last id, $2: an organisation or null, $3: limit.
    static let page = """
        SELECT \(ScheduleColumns.list) FROM carillon.schedules s
        WHERE s.id > $1 AND ($2::text IS NULL OR s.org_id = $2) ORDER BY s.id LIMIT $3
        """

    /// $1: a user, $2: the last id.
    static let naming = """
        SELECT s.id, s.fields FROM carillon.schedules s
        WHERE s.id > $2 AND s.user_id IS NULL AND \(DeadLetterErasure.mayName("$1", in: "s.fields"))
        ORDER BY s.id LIMIT 500
        """
}
