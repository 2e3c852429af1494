// Carillon · jobs.h
// SPDX-License-Identifier: Apache-2.0

// A batch of jobs: reading it from a stream, storing it with inbox versions, acknowledging it.

#pragma once

#include "floor.h"

struct job {
    struct text entry, user, type, title, body, data;
    int64_t version;
    // The place of the user among those of the batch, from 1, and how many of the user's jobs
    // follow.
    int32_t place, behind;
};

struct batch {
    // Owns the bytes of the jobs.
    redisReply *reply;
    struct job jobs[batch_size];
    int count;
};

static void append_read(redisContext *redis, const char *stream, int milliseconds) {
    if (milliseconds > 0) {
        redisAppendCommand(redis, "XREADGROUP GROUP %s floor COUNT %d BLOCK %d STREAMS %s >", group, batch_size,
                           milliseconds, stream);
    } else {
        redisAppendCommand(redis, "XREADGROUP GROUP %s floor COUNT %d STREAMS %s >", group, batch_size, stream);
    }
}

static void make_group(redisContext *redis, const char *stream) {
    redisReply *reply = redisCommand(redis, "XGROUP CREATE %s %s 0 MKSTREAM", stream, group);
    if (!reply) fail("redis: %s", redis->errstr);
    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "BUSYGROUP", 9) != 0) fail("redis: %s", reply->str);
    freeReplyObject(reply);
}

static bool is(const redisReply *reply, const char *name) {
    return reply->len == strlen(name) && memcmp(reply->str, name, reply->len) == 0;
}

// Takes the reply to append_read: [[stream, [[id, [name, value, …]], …]]], or null for none.
static void take_batch(redisContext *redis, struct batch *batch) {
    batch->reply = take_reply(redis);
    batch->count = 0;
    if (batch->reply->type != REDIS_REPLY_ARRAY) return;
    redisReply *entries = batch->reply->element[0]->element[1];
    for (size_t index = 0; index < entries->elements; index++) {
        redisReply *id = entries->element[index]->element[0], *fields = entries->element[index]->element[1];
        struct job *job = &batch->jobs[batch->count++];
        *job = (struct job){.entry = {id->str, id->len}};
        for (size_t field = 0; field + 1 < fields->elements; field += 2) {
            redisReply *name = fields->element[field], *value = fields->element[field + 1];
            struct text text = {value->str, value->len};
            if (is(name, "user")) job->user = text;
            else if (is(name, "type")) job->type = text;
            else if (is(name, "title")) job->title = text;
            else if (is(name, "body")) job->body = text;
            else if (is(name, "data")) job->data = text;
        }
        if (!job->user.bytes || !job->type.bytes || !job->title.bytes || !job->body.bytes || !job->data.bytes) {
            fail("%s: a field is missing", id->str);
        }
    }
}

static void free_batch(struct batch *batch) {
    if (batch->reply) freeReplyObject(batch->reply);
    batch->reply = NULL;
    batch->count = 0;
}

// Acknowledges and deletes entries, as Carillon does; two replies.
static void append_acknowledgement(redisContext *redis, const char *stream, struct batch *batch) {
    const char *words[batch_size + 3];
    size_t lengths[batch_size + 3];
    for (int command = 0; command < 2; command++) {
        int count = 0;
        words[count] = command == 0 ? "XACK" : "XDEL";
        lengths[count++] = 4;
        words[count] = stream;
        lengths[count++] = strlen(stream);
        if (command == 0) {
            words[count] = group;
            lengths[count++] = strlen(group);
        }
        for (int index = 0; index < batch->count; index++) {
            words[count] = batch->jobs[index].entry.bytes;
            lengths[count++] = batch->jobs[index].entry.length;
        }
        redisAppendCommandArgv(redis, count, words, lengths);
    }
}

// Storing

// One statement and one transaction a batch: raises the inboxes, in the order of $1, and numbers
// the rows up to the versions that they reach. The order of the users prevents deadlocks.
static const char store_sql[] =
    "WITH raised AS ("
    " INSERT INTO floor.inboxes AS b (user_id, version) SELECT * FROM unnest($1::text[], $2::int8[])"
    " ON CONFLICT (user_id) DO UPDATE SET version = b.version + EXCLUDED.version RETURNING b.version),"
    " reached AS MATERIALIZED (SELECT array_agg(version) AS versions FROM raised),"
    " stored AS (INSERT INTO floor.notifications (version, user_id, entry, type, title, body, data)"
    " SELECT r.versions[t.place] - t.behind, t.user_id, t.entry, t.type, t.title, t.body, t.data FROM reached r"
    " CROSS JOIN unnest($3::int4[], $4::int4[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],"
    " $10::text[]) AS t (place, behind, user_id, entry, type, title, body, data))"
    " SELECT unnest(versions) FROM reached";

static int by_user(const void *left, const void *right) {
    const struct job *a = *(struct job *const *)left, *b = *(struct job *const *)right;
    size_t length = a->user.length < b->user.length ? a->user.length : b->user.length;
    int order = memcmp(a->user.bytes, b->user.bytes, length);
    if (order == 0 && a->user.length != b->user.length) order = a->user.length < b->user.length ? -1 : 1;
    // Jobs of a user keep their order.
    return order != 0 ? order : a < b ? -1 : 1;
}

static bool is_same_user(const struct job *a, const struct job *b) {
    return a->user.length == b->user.length && memcmp(a->user.bytes, b->user.bytes, a->user.length) == 0;
}

// Sends the prepared statement `store` without waiting for its result.
static void send_store(PGconn *connection, struct batch *batch) {
    static struct array arrays[10];
    for (int index = 0; index < 10; index++) {
        arrays[index].type = index == 1 ? int8_type : index == 2 || index == 3 ? int4_type : text_type;
        empty(&arrays[index]);
    }
    struct job *sorted[batch_size];
    for (int index = 0; index < batch->count; index++) sorted[index] = &batch->jobs[index];
    qsort(sorted, (size_t)batch->count, sizeof *sorted, by_user);
    for (int first = 0, next; first < batch->count; first = next) {
        for (next = first + 1; next < batch->count && is_same_user(sorted[first], sorted[next]);) next++;
        add_text(&arrays[0], sorted[first]->user);
        add_int8(&arrays[1], next - first);
        for (int index = first; index < next; index++) {
            sorted[index]->place = arrays[0].count;
            sorted[index]->behind = next - 1 - index;
        }
    }
    for (int index = 0; index < batch->count; index++) {
        struct job *job = &batch->jobs[index];
        add_int4(&arrays[2], job->place);
        add_int4(&arrays[3], job->behind);
        add_text(&arrays[4], job->user);
        add_text(&arrays[5], job->entry);
        add_text(&arrays[6], job->type);
        add_text(&arrays[7], job->title);
        add_text(&arrays[8], job->body);
        add_text(&arrays[9], job->data);
    }
    send_arrays(connection, "store", arrays, 10);
}

// Waits until the batch is stored, and notes the versions of its jobs.
static void take_store(PGconn *connection, struct batch *batch) {
    PGresult *result = take_result(connection);
    for (int index = 0; index < batch->count; index++) {
        struct job *job = &batch->jobs[index];
        job->version = read_int8(result, job->place - 1, 0) - job->behind;
    }
    PQclear(result);
}
