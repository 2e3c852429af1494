// Carillon · TopicStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Subscriptions of users to topics.
package struct TopicStore: Sendable {
    let pool: PostgresPool

    /// Subscribes a user.
    ///
    /// Repeating it changes nothing.
    ///
    /// - Parameter limit: the user's largest number of topics; nil for no limit.
    /// - Returns: false if the user has reached the limit.
    package func subscribe(user: String, topic: String, limit: Int? = nil) async throws(PostgresError) -> Bool {
        let results = try await self.pool.run(
            // The lock serialises subscriptions of one user, so that the limit holds.
            [
                UserStore.lock(user: user),
                PostgresStatement(
                    """
                    INSERT INTO carillon.subscriptions (topic, user_id) SELECT $1, $2
                    WHERE $3::int8 IS NULL
                        OR (SELECT count(*) FROM carillon.subscriptions WHERE user_id = $2) < $3
                    ON CONFLICT DO NOTHING
                    """,
                    [.text(topic), .text(user), limit.map { .int8(Int64($0)) } ?? .null(.int8)]
                ),
                PostgresStatement(
                    "SELECT FROM carillon.subscriptions WHERE topic = $1 AND user_id = $2", [.text(topic), .text(user)]
                ),
            ]
        )
        return results.last.map { !$0.isEmpty } ?? false
    }

    /// Ends a subscription; returns whether it existed.
    @discardableResult
    package func unsubscribe(user: String, topic: String) async throws(PostgresError) -> Bool {
        try await self.pool.delete(
            "DELETE FROM carillon.subscriptions WHERE topic = $1 AND user_id = $2",
            .text(topic), .text(user)
        ) > 0
    }

    /// Whether a user is subscribed to a topic.
    package func isSubscribed(user: String, topic: String) async throws(PostgresError) -> Bool {
        try await !self.pool.query(
            "SELECT FROM carillon.subscriptions WHERE topic = $1 AND user_id = $2", .text(topic), .text(user)
        ).isEmpty
    }

    /// The users among `users` who are subscribed to a topic.
    package func subscribers(of topic: String, among users: [String]) async throws(PostgresError) -> Set<ExactText> {
        let result = try await self.pool.query(
            "SELECT user_id FROM carillon.subscriptions WHERE topic = $1 AND user_id = ANY($2)",
            .text(topic), .texts(users)
        )
        return Set(try result.texts().map { ExactText($0) })
    }

    /// Subscribes a known user to several topics.
    static func subscription(user: String, topics: [String]) -> PostgresStatement {
        PostgresStatement(
            """
            INSERT INTO carillon.subscriptions (topic, user_id)
            SELECT t.topic, $1 FROM unnest($2) AS t (topic) ON CONFLICT DO NOTHING
            """,
            [.text(user), .texts(topics)]
        )
    }
}
