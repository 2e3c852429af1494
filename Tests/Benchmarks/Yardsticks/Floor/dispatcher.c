// Carillon · dispatcher.c
// SPDX-License-Identifier: Apache-2.0

// The floor of a dispatcher for sockets: reads jobs in batches, stores each batch with inbox
// versions, publishes a frame for each job in one message, and acknowledges. One thread; while
// PostgreSQL stores a batch, the one before is published and the next is read.
//
// It checks, renders and routes nothing: every user is taken to be online at the one gateway.
//
//   cc -O2 -I/usr/include/postgresql -o floor-dispatcher dispatcher.c -lhiredis -lpq
//   ./floor-dispatcher [-b] redis://127.0.0.1:6379/1 postgresql://… carillon:jobs
//
// With -b it stores nothing: the bare loop from XADD to PUBLISH, for latencies.
//
// Prints `ready` when it reads.

#include "jobs.h"

// Appends frames: user (with a length of two bytes), version (eight bytes), JSON (with a length of
// four), all big-endian.
static void append_frame(struct buffer *message, const struct job *job) {
    uint16_t user = htons((uint16_t)job->user.length);
    append(message, &user, sizeof user);
    append(message, job->user.bytes, job->user.length);
    append_word(message, (int32_t)(job->version >> 32));
    append_word(message, (int32_t)job->version);
    size_t start = message->length;
    append_word(message, 0);
    append_text(message, "{\"type\":\"notification\",\"version\":");
    message->length += (size_t)snprintf(reserve(message, 24), 24, "%lld", (long long)job->version);
    append_text(message, ",\"notification\":{\"id\":");
    append_json(message, job->entry);
    append_text(message, ",\"type\":");
    append_json(message, job->type);
    append_text(message, ",\"title\":");
    append_json(message, job->title);
    append_text(message, ",\"body\":");
    append_json(message, job->body);
    append_text(message, ",\"data\":");
    append(message, job->data.bytes, job->data.length);
    append_text(message, "}}");
    uint32_t length = htonl((uint32_t)(message->length - start - 4));
    memcpy(message->bytes + start, &length, sizeof length);
}

// Appends the PUBLISH of a stored batch and its acknowledgement; three replies.
static void append_end(redisContext *redis, const char *stream, struct batch *batch) {
    static struct buffer message;
    message.length = 0;
    for (int index = 0; index < batch->count; index++) append_frame(&message, &batch->jobs[index]);
    const char *words[] = {"PUBLISH", channel, message.bytes};
    size_t lengths[] = {7, strlen(channel), message.length};
    redisAppendCommandArgv(redis, 3, words, lengths);
    append_acknowledgement(redis, stream, batch);
}

int main(int argc, char **argv) {
    begin();
    bool stores = true;
    for (int option; (option = getopt(argc, argv, "b")) != -1;) {
        if (option != 'b') return 64;
        stores = false;
    }
    if (optind + 3 != argc) fail("usage: floor-dispatcher [-b] redis postgres stream");
    const char *stream = argv[optind + 2];
    redisContext *redis = open_redis(argv[optind]);
    make_group(redis, stream);
    PGconn *postgres = stores ? open_postgres(argv[optind + 1]) : NULL;
    if (stores) prepare(postgres, "store", store_sql);
    puts("ready");

    static struct batch batches[3];
    // The batch that was read, the one that PostgreSQL stores, and the one to publish.
    struct batch *next = &batches[0], *current = &batches[1], *stored = &batches[2];
    for (int64_t bare = 0;;) {
        struct batch *free = stored;
        if (stores) {
            if (current->count > 0) take_store(postgres, current);
            stored = current;
            current = next;
            if (current->count > 0) send_store(postgres, current);
        } else {
            stored = next;
            for (int index = 0; index < stored->count; index++) stored->jobs[index].version = ++bare;
        }
        next = free;
        if (stored->count > 0) append_end(redis, stream, stored);
        // Waits for jobs only if PostgreSQL stores none.
        append_read(redis, stream, current->count == 0 ? 1000 : 0);
        if (stored->count > 0) skip_replies(redis, 3);
        free_batch(stored);
        take_batch(redis, next);
    }
}
