// Carillon · GatewayMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Operations

/// What a gateway prints at `/metrics`.
enum GatewayMetrics {
    static let families =
        MetricFamily.common + [
            MetricFamily(
                "carillon_stream_length", .gauge, by: ["stream", "lane"],
                "entries of a stream, waiting or being worked on; stream is jobs or a provider"),
            MetricFamily(
                "carillon_stream_lag", .gauge, by: ["stream", "lane"], "entries that no dispatcher has taken yet"),
            MetricFamily(
                "carillon_stream_pending", .gauge, by: ["stream", "lane"],
                "entries that were taken and are not finished"),
            MetricFamily(
                "carillon_stream_oldest_seconds", .gauge, by: ["stream", "lane"],
                "for how long the oldest has been waiting since it was first appended: in the stream, being worked on, "
                    + "until its next try or held back"),
            MetricFamily(
                "carillon_stream_retries", .gauge, by: ["stream", "lane"],
                "deliveries that wait for their next try, or are held back"),
            MetricFamily("carillon_dispatchers_alive", .gauge, "dispatchers with a lease"),
            MetricFamily("carillon_gateways_alive", .gauge, "gateways with a lease"),
            MetricFamily("carillon_redis_memory_bytes", .gauge, "memory that Redis uses"),
            MetricFamily("carillon_redis_memory_limit_bytes", .gauge, "memory that Redis may use, 0 for no bound"),
            MetricFamily(
                "carillon_redis_durable", .gauge, "1 if Redis writes an append-only file and evicts nothing, else 0"),
            MetricFamily(
                "carillon_calls_answered", .counter, by: ["class"],
                "2xx, 3xx, 4xx, 5xx: calls of the API and of the paths of other systems"),
            MetricFamily("carillon_calls_duration", .histogram, "seconds to the answer of a call"),
            MetricFamily(
                "carillon_inbox_pages", .counter, by: ["from"],
                "newest pages of inboxes: kept in memory, read as the inbox had changed, read as none was kept"),
            MetricFamily(
                "carillon_inbox_pages_dropped", .counter, "pages dropped from memory as INBOX_CACHE_MB was reached"),
            MetricFamily("carillon_inbox_pages_bytes", .gauge, "memory that kept pages take"),
            MetricFamily(
                "carillon_compatibility_calls", .counter, by: ["system", "outcome"],
                "calls on the paths of other systems: answered, refused, failed"),
            MetricFamily("carillon_tokens_refused", .counter, "tokens and tickets that were not good"),
            MetricFamily("carillon_tokens_unchecked", .counter, "tokens and tickets that could not be checked (503)"),
            MetricFamily("carillon_revocations_held", .gauge, "users with revoked tokens in memory"),
            MetricFamily("carillon_revocations_lookups", .counter, "users looked up as not all are in memory"),
            MetricFamily("carillon_keyset_readings", .counter, "times that the key set was read"),
            MetricFamily("carillon_keyset_failures", .counter, "times that the key set could not be read"),
            MetricFamily("carillon_sockets_open", .gauge, "sockets that are open"),
            MetricFamily("carillon_sockets_accepted", .counter, "sockets that were let in"),
            MetricFamily("carillon_sockets_refused", .counter, "sockets refused for want of a credential"),
            MetricFamily("carillon_sockets_slow", .counter, "sockets closed as slow readers"),
            MetricFamily(
                "carillon_sockets_crowded", .counter, "sockets closed because their user has too many newer ones"),
            MetricFamily("carillon_sockets_frames", .counter, "frames that came"),
            MetricFamily("carillon_sockets_proofs", .counter, "proofs of receipt"),
            MetricFamily("carillon_sockets_filled", .counter, "holes filled from the inbox"),
            MetricFamily(
                "carillon_sockets_dropped", .counter,
                "changes that found 1,024 waiting at their socket, and are read from the inbox instead, or "
                    + "that a dialect cannot say"),
            MetricFamily(
                "carillon_sockets_unproven", .counter, "notifications without proof, as 4,096 waited for theirs"),
            MetricFamily(
                "carillon_sockets_incomplete", .counter,
                "changes in no inbox that came without the shape that a socket needs"),
            MetricFamily(
                "carillon_sockets_shed", .counter,
                "changes kept from an event loop for which 50,000 wait, and changes found after the node stood still "
                    + "until its lease had lapsed; sockets then get them from their inboxes"),
            MetricFamily("carillon_sockets_ghosts", .counter, "presences that stayed behind and were removed"),
            MetricFamily(
                "carillon_sockets_overflows", .counter,
                "openings, requests, proofs or departures that found their queue full, polling sessions of "
                    + "Socket.IO beyond 100,000, or beyond 1,000 of one address that have not joined"),
            MetricFamily("carillon_signalr_refused", .counter, "connections that found the node full"),
            MetricFamily("carillon_signalr_returned", .counter, "connections that went on over another WebSocket"),
            MetricFamily("carillon_signalr_unused", .counter, "negotiations that nobody took up"),
            MetricFamily(
                "carillon_signalr_paused", .counter,
                "times that a WebSocket was not read as too many of its calls waited"),
            MetricFamily(
                "carillon_presence_unseen", .counter,
                "users of whom it could not be noted that they were last here, as PostgreSQL or Redis was out of reach"),
            MetricFamily("carillon_retractions_asked", .counter, "notifications taken off other devices"),
            MetricFamily(
                "carillon_retractions_omitted", .counter,
                "notifications left on other devices as a user's rate was used up"),
            MetricFamily(
                "carillon_door_refused", .counter, by: ["reason"],
                "origin, head, body, address, slow, files (no place for another connection), pipeline (too much behind a "
                    + "request that is not answered), memory (no room for another body): what the listener refused"),
            MetricFamily("carillon_rate_refused", .counter, by: ["kind"], "calls, messages of users who did too much"),
            MetricFamily(
                "carillon_rate_unchecked", .counter, by: ["kind"],
                "lots that were not counted, as Redis was out of reach"),
        ]
}
