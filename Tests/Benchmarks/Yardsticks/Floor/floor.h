// Carillon · floor.h
// SPDX-License-Identifier: Apache-2.0

// Shared by the programs of the floor: connections, buffers, binary arrays for PostgreSQL, and a
// batch of jobs with the statement that stores it. Each program is one file that includes this one.

#pragma once

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// No program uses all of it.
#pragma GCC diagnostic ignored "-Wunused-function"

// The jobs of a batch, as many as Carillon reads.
enum { batch_size = 256 };

static const char group[] = "dispatchers", channel[] = "floor:frames";

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(70);
}

// The parent may have blocked signals, and a child inherits that.
static void begin(void) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
}

static int64_t microseconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

// Buffers

struct buffer {
    char *bytes;
    size_t length, capacity;
};

// Makes room and returns it; the caller adds to the length.
static char *reserve(struct buffer *buffer, size_t more) {
    if (buffer->length + more > buffer->capacity) {
        buffer->capacity = (buffer->length + more) * 2;
        buffer->bytes = realloc(buffer->bytes, buffer->capacity);
        if (!buffer->bytes) fail("no memory");
    }
    return buffer->bytes + buffer->length;
}

static void append(struct buffer *buffer, const void *bytes, size_t length) {
    memcpy(reserve(buffer, length), bytes, length);
    buffer->length += length;
}

static void append_text(struct buffer *buffer, const char *text) { append(buffer, text, strlen(text)); }

static void append_word(struct buffer *buffer, int32_t word) {
    uint32_t big = htonl((uint32_t)word);
    append(buffer, &big, sizeof big);
}

static void drop(struct buffer *buffer, size_t count) {
    memmove(buffer->bytes, buffer->bytes + count, buffer->length - count);
    buffer->length -= count;
}

struct text {
    const char *bytes;
    size_t length;
};

// Appends a string of JSON with its quotes.
static void append_json(struct buffer *buffer, struct text text) {
    append(buffer, "\"", 1);
    for (size_t index = 0; index < text.length; index++) {
        unsigned char byte = (unsigned char)text.bytes[index];
        char *room = reserve(buffer, 7);
        if (byte == '"' || byte == '\\') {
            room[0] = '\\';
            room[1] = (char)byte;
            buffer->length += 2;
        } else if (byte < 0x20) {
            buffer->length += (size_t)snprintf(room, 7, "\\u%04x", byte);
        } else {
            room[0] = (char)byte;
            buffer->length++;
        }
    }
    append(buffer, "\"", 1);
}

// Redis

// Connects to redis://HOST:PORT/DATABASE, the form of the benchmarks' private Redis.
static redisContext *open_redis(const char *url) {
    char host[256];
    int port = 6379, database = 0;
    if (sscanf(url, "redis://%255[^:/]:%d/%d", host, &port, &database) < 2) fail("%s: not redis://HOST:PORT/N", url);
    redisContext *redis = redisConnect(host, port);
    if (!redis || redis->err) fail("redis: %s", redis ? redis->errstr : "no memory");
    // Keeps the reader's buffer from one reply to the next.
    redis->reader->maxbuf = 0;
    redisReply *reply = redisCommand(redis, "SELECT %d", database);
    if (!reply || reply->type == REDIS_REPLY_ERROR) fail("redis: cannot select database %d", database);
    freeReplyObject(reply);
    return redis;
}

// Returns the next reply; the caller frees it.
static redisReply *take_reply(redisContext *redis) {
    void *reply = NULL;
    if (redisGetReply(redis, &reply) != REDIS_OK) fail("redis: %s", redis->errstr);
    if (((redisReply *)reply)->type == REDIS_REPLY_ERROR) fail("redis: %s", ((redisReply *)reply)->str);
    return reply;
}

static void skip_replies(redisContext *redis, int count) {
    while (count-- > 0) freeReplyObject(take_reply(redis));
}

// PostgreSQL

// The floor's own tables: the columns and keys that inbox, proof and push need, and no others.
//
// A proof covers all versions of an inbox up to one. It is a row of its own, so the notification's
// row never changes. A repeated entry is found by its user and entry, without an index of entries.
static const char schema[] =
    "CREATE SCHEMA IF NOT EXISTS floor;"
    "CREATE TABLE IF NOT EXISTS floor.inboxes (user_id text PRIMARY KEY, version bigint NOT NULL)"
    " WITH (fillfactor = 50);"
    "CREATE TABLE IF NOT EXISTS floor.notifications (user_id text NOT NULL, version bigint NOT NULL,"
    " entry text NOT NULL, type text NOT NULL, title text NOT NULL, body text NOT NULL, data text,"
    " created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (user_id, version));"
    "CREATE TABLE IF NOT EXISTS floor.receipts (user_id text NOT NULL, version bigint NOT NULL,"
    " at timestamptz NOT NULL DEFAULT now());"
    "CREATE TABLE IF NOT EXISTS floor.attempts (user_id text NOT NULL, version bigint NOT NULL,"
    " status integer NOT NULL, provider_id text, at timestamptz NOT NULL DEFAULT now());";

static void check_result(PGconn *connection, PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && status != PGRES_PIPELINE_SYNC) {
        fail("postgres: %s%s", PQresultErrorMessage(result), PQerrorMessage(connection));
    }
}

static void execute(PGconn *connection, const char *script) {
    PGresult *result = PQexec(connection, script);
    check_result(connection, result);
    PQclear(result);
}

// Connects with the session settings of Carillon's stores, and creates missing tables.
static PGconn *open_postgres(const char *url) {
    PGconn *connection = PQconnectdb(url);
    if (PQstatus(connection) != CONNECTION_OK) fail("postgres: %s", PQerrorMessage(connection));
    execute(connection, "SET client_min_messages = warning; SET jit = off; SET plan_cache_mode = force_generic_plan;"
                        "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off");
    execute(connection, schema);
    return connection;
}

static void prepare(PGconn *connection, const char *name, const char *sql) {
    PGresult *result = PQprepare(connection, name, sql, 0, NULL);
    check_result(connection, result);
    PQclear(result);
}

// Waits for the result of a statement; the caller clears it. In pipeline mode also of a sync point.
static PGresult *take_result(PGconn *connection) {
    PGresult *result = PQgetResult(connection);
    check_result(connection, result);
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) return result;
    PGresult *none = PQgetResult(connection);
    if (none) fail("postgres: more than one result");
    return result;
}

// A parameter in the binary form of a one-dimensional array.
struct array {
    struct buffer buffer;
    int32_t type, count;
};

enum { text_type = 25, int4_type = 23, int8_type = 20 };

static void empty(struct array *array) {
    array->count = 0;
    array->buffer.length = 0;
    // Dimensions, nulls, type, length (set at the end) and the first index.
    int32_t header[] = {1, 0, array->type, 0, 1};
    for (int index = 0; index < 5; index++) append_word(&array->buffer, header[index]);
}

static void add_text(struct array *array, struct text text) {
    append_word(&array->buffer, (int32_t)text.length);
    append(&array->buffer, text.bytes, text.length);
    array->count++;
}

static void add_int4(struct array *array, int32_t value) {
    append_word(&array->buffer, sizeof value);
    append_word(&array->buffer, value);
    array->count++;
}

static void add_int8(struct array *array, int64_t value) {
    append_word(&array->buffer, sizeof value);
    append_word(&array->buffer, (int32_t)(value >> 32));
    append_word(&array->buffer, (int32_t)value);
    array->count++;
}

static int64_t read_int8(PGresult *result, int row, int column) {
    uint32_t words[2];
    memcpy(words, PQgetvalue(result, row, column), sizeof words);
    return (int64_t)((uint64_t)ntohl(words[0]) << 32 | ntohl(words[1]));
}

// Sends a prepared statement with arrays as parameters; libpq copies them.
static void send_arrays(PGconn *connection, const char *name, struct array *arrays, int count) {
    const char *values[16];
    int lengths[16], formats[16];
    for (int index = 0; index < count; index++) {
        uint32_t length = htonl((uint32_t)arrays[index].count);
        memcpy(arrays[index].buffer.bytes + 12, &length, sizeof length);
        values[index] = arrays[index].buffer.bytes;
        lengths[index] = (int)arrays[index].buffer.length;
        formats[index] = 1;
    }
    if (!PQsendQueryPrepared(connection, name, count, values, lengths, formats, 1)) {
        fail("postgres: %s", PQerrorMessage(connection));
    }
}
