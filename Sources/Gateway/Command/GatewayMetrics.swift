// Carillon · GatewayMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Operations

/// The metrics that a gateway prints at `/metrics`.
enum GatewayMetrics {
    static let families =
        MetricFamily.common + [
            MetricFamily(
                "carillon_stream_length", .gauge, by: ["stream", "lane"],
                "entries of a stream, waiting or in flight; stream is jobs, overflow or a provider"),
            MetricFamily(
                "carillon_stream_lag", .gauge, by: ["stream", "lane"], "entries that no dispatcher has taken yet"),
            MetricFamily(
                "carillon_stream_pending", .gauge, by: ["stream", "lane"],
                "entries in flight"),
            MetricFamily(
                "carillon_stream_oldest_seconds", .gauge, by: ["stream", "lane"],
                "age of the oldest entry since it was first appended, whether it waits, is in flight, awaits a retry or is "
                    + "held back"),
            MetricFamily(
                "carillon_stream_retries", .gauge, by: ["stream", "lane"],
                "deliveries that wait for a retry or are held back"),
            MetricFamily(
                "carillon_dispatchers_alive", .gauge,
                "dispatchers with a lease; in a cluster, without those that drain"),
            MetricFamily("carillon_gateways_alive", .gauge, "gateways with a lease"),
            MetricFamily(
                "carillon_redis_memory_bytes", .gauge, "memory that Redis uses; in a cluster, of its fullest server"),
            MetricFamily(
                "carillon_redis_memory_limit_bytes", .gauge,
                "memory that the same server may use: maxmemory, or else all of its machine; absent if Redis states neither"
            ),
            MetricFamily(
                "carillon_redis_durable", .gauge,
                "1 if Redis writes an append-only file, no write to its disk failed, and it evicts nothing, else 0"),
            MetricFamily(
                "carillon_calls_answered", .counter, by: ["class"], values: ["2xx", "3xx", "4xx", "5xx"],
                "2xx, 3xx, 4xx, 5xx: calls of the API and of the paths of other systems"),
            MetricFamily("carillon_calls_duration", .histogram, "duration of a call in seconds"),
            MetricFamily(
                "carillon_inbox_pages", .counter, by: ["from"], values: ["kept", "changed", "read"],
                "newest pages of inboxes: kept from memory, changed and read again, read because none was in memory"),
            MetricFamily(
                "carillon_inbox_pages_dropped", .counter, "pages evicted because INBOX_CACHE_MB was reached"),
            MetricFamily(
                "carillon_standby_pages", .counter, by: ["outcome"], values: ["served", "older", "failed"],
                "pages asked of DATABASE_READ_URL: served, older than the primary's state, failed; the primary "
                    + "answered these two"),
            MetricFamily(
                "carillon_compatibility_calls", .counter, by: ["system", "outcome"],
                "calls on the paths of other systems: answered, refused, failed"),
            MetricFamily("carillon_tokens_refused", .counter, "tokens and tickets that were not valid"),
            MetricFamily("carillon_tokens_unchecked", .counter, "tokens and tickets that could not be checked (503)"),
            MetricFamily("carillon_revocations_held", .gauge, "users with revoked tokens in memory, at most 750,000"),
            MetricFamily("carillon_keyset_readings", .counter, "reads of the key set"),
            MetricFamily("carillon_keyset_failures", .counter, "failed reads of the key set"),
            MetricFamily("carillon_sockets_open", .gauge, "open sockets"),
            MetricFamily("carillon_sockets_accepted", .counter, "sockets accepted"),
            MetricFamily("carillon_sockets_refused", .counter, "sockets refused because no credential was valid"),
            MetricFamily("carillon_sockets_slow", .counter, "sockets closed because their client read too slowly"),
            MetricFamily(
                "carillon_sockets_crowded", .counter, "sockets closed because their user opened too many newer ones"),
            MetricFamily("carillon_sockets_frames", .counter, "frames received"),
            MetricFamily("carillon_sockets_proofs", .counter, "proofs of receipt"),
            MetricFamily("carillon_sockets_filled", .counter, "gaps filled from the inbox"),
            MetricFamily(
                "carillon_sockets_dropped", .counter,
                "changes dropped because 1,024 waited at their socket (read from the inbox later), or because a "
                    + "dialect cannot express them"),
            MetricFamily(
                "carillon_sockets_unproven", .counter, "notifications without proof because 4,096 proofs were pending"),
            MetricFamily(
                "carillon_sockets_incomplete", .counter,
                "changes in no inbox that lack the shape that a socket needs"),
            MetricFamily(
                "carillon_sockets_shed", .counter,
                "changes dropped because 50,000 waited on an event loop, or because they came after the lease had "
                    + "expired (sockets read both from their inboxes); also events for everyone that an event loop "
                    + "had no time for"),
            MetricFamily("carillon_sockets_ghosts", .counter, "stale presence entries that were removed"),
            MetricFamily(
                "carillon_sockets_overflows", .counter,
                "work dropped because its queue was full: openings, requests, proofs, departures, and the writes to "
                    + "Redis after proofs (deadlines, events); also polling sessions of Socket.IO beyond 100,000, or "
                    + "beyond 1,000 of one address that have not joined"),
            MetricFamily(
                "carillon_frames_lost", .counter,
                "users' changes that could not be published; their other sockets get them with the next change"),
            MetricFamily(
                "carillon_signalr_refused", .counter,
                "connections refused because the node was full or their user had too many without a handshake"),
            MetricFamily(
                "carillon_signalr_paused", .counter,
                "pauses in reading a WebSocket because too many of its calls waited"),
            MetricFamily(
                "carillon_presence_unseen", .counter,
                "last visits that were not recorded because PostgreSQL or Redis was out of reach or too slow"),
            MetricFamily(
                "carillon_retractions_omitted", .counter,
                "notifications left on other devices because a user's rate was used up, or a provider had too many "
                    + "deliveries"),
            MetricFamily(
                "carillon_connections_refused", .counter, by: ["reason"],
                values: ["origin", "head", "body", "address", "slow", "files", "pipeline", "memory"],
                "origin, head, body, address, slow, files (no room for another connection), pipeline (too much behind an "
                    + "unanswered request), memory (no room for another body or unread answer): refusals of the "
                    + "listener"),
            MetricFamily(
                "carillon_rate_refused", .counter, by: ["kind"],
                "calls, messages, openings (new sockets and streams) beyond a user's rate"),
            MetricFamily(
                "carillon_rate_unchecked", .counter, by: ["kind"],
                "batches not counted because Redis was out of reach, or because 50,000 users were over their limit"),
        ]
}
