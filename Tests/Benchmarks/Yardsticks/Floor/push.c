// Carillon · push.c
// SPDX-License-Identifier: Apache-2.0

// The floor of a dispatcher for pushes to FCM: reads jobs in batches, stores each batch with inbox
// versions and looks up its users' devices in one pipeline, makes one HTTP/2 request for each
// device, records the answers of the batch in one statement, and acknowledges. One thread.
//
// It checks, renders and retries nothing, and takes every user to be offline.
//
//   cc -O2 -I/usr/include/postgresql -o floor-push push.c -lhiredis -lpq -lcurl
//   ./floor-push redis://127.0.0.1:6379/1 postgresql://… carillon:jobs https://…:send ca.pem TOKEN
//
// The devices are those of carillon.devices. Prints `ready` when it reads.

#include "jobs.h"

#include <curl/curl.h>

// Connections and streams as Carillon has them.
enum { maximum_batches = 4, connections = 4, streams = 100, grouped_from = 64 };

struct push {
    CURL *easy;
    struct work *work;
    const struct job *job;
    struct buffer body, answer;
    long status;
    // The next one of the same batch, or of the free ones.
    struct push *next;
};

// A batch and its pushes.
struct work {
    struct batch batch;
    enum { is_free, is_storing, is_sending, is_recording } state;
    struct push *pushes;
    int unanswered;
};

static const char lookup_sql[] =
    "SELECT u.n - 1, d.token FROM unnest($1::text[]) WITH ORDINALITY AS u (user_id, n) CROSS JOIN LATERAL"
    " (SELECT token FROM carillon.devices d WHERE d.user_id = u.user_id AND d.active AND d.provider = 'fcm') d";

static const char record_sql[] =
    "INSERT INTO floor.attempts (user_id, version, status, provider_id)"
    " SELECT * FROM unnest($1::text[], $2::int8[], $3::int4[], $4::text[])";

static struct work works[maximum_batches];
static struct push *free_pushes;
static CURLM *multi;
static struct curl_slist *headers;
static const char *url, *ca_file, *stream;

// Requests

static size_t keep_answer(char *bytes, size_t size, size_t count, void *context) {
    append(&((struct push *)context)->answer, bytes, size * count);
    return size * count;
}

static struct push *new_push(void) {
    struct push *push = calloc(1, sizeof *push);
    if (!push || !(push->easy = curl_easy_init())) fail("no memory");
    curl_easy_setopt(push->easy, CURLOPT_URL, url);
    curl_easy_setopt(push->easy, CURLOPT_CAINFO, ca_file);
    curl_easy_setopt(push->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(push->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    curl_easy_setopt(push->easy, CURLOPT_PIPEWAIT, 1L);
    curl_easy_setopt(push->easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(push->easy, CURLOPT_TIMEOUT_MS, 30000L);
    curl_easy_setopt(push->easy, CURLOPT_WRITEFUNCTION, keep_answer);
    curl_easy_setopt(push->easy, CURLOPT_WRITEDATA, push);
    curl_easy_setopt(push->easy, CURLOPT_PRIVATE, push);
    return push;
}

static void start_push(struct work *work, const struct job *job, struct text token) {
    struct push *push = free_pushes ? free_pushes : new_push();
    if (push == free_pushes) free_pushes = push->next;
    push->next = work->pushes;
    work->pushes = push;
    work->unanswered++;
    push->work = work;
    push->job = job;
    push->answer.length = push->body.length = 0;
    append_text(&push->body, "{\"message\":{\"token\":");
    append_json(&push->body, token);
    append_text(&push->body, ",\"notification\":{\"title\":");
    append_json(&push->body, job->title);
    append_text(&push->body, ",\"body\":");
    append_json(&push->body, job->body);
    append_text(&push->body, "},\"data\":{\"notification_id\":");
    append_json(&push->body, job->entry);
    append_text(&push->body, ",\"type\":");
    append_json(&push->body, job->type);
    append_text(&push->body, ",\"data\":");
    append_json(&push->body, job->data);
    append_text(&push->body, "},\"android\":{\"priority\":\"high\",\"ttl\":\"86400s\"}}}");
    curl_easy_setopt(push->easy, CURLOPT_POSTFIELDSIZE, (long)push->body.length);
    curl_easy_setopt(push->easy, CURLOPT_POSTFIELDS, push->body.bytes);
    if (curl_multi_add_handle(multi, push->easy) != CURLM_OK) fail("curl: cannot add a request");
}

// Returns how many requests were answered.
static int take_answers(void) {
    int count = 0, left;
    for (CURLMsg *message; (message = curl_multi_info_read(multi, &left));) {
        if (message->msg != CURLMSG_DONE) continue;
        struct push *push;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &push);
        if (message->data.result != CURLE_OK) fail("curl: %s", curl_easy_strerror(message->data.result));
        curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &push->status);
        curl_multi_remove_handle(multi, push->easy);
        push->work->unanswered--;
        count++;
    }
    return count;
}

// The name that FCM gave the message.
static struct text provider_id(const struct push *push) {
    static const char marker[] = "\"name\": \"";
    char *end = push->answer.bytes + push->answer.length;
    char *start = memmem(push->answer.bytes, push->answer.length, marker, sizeof marker - 1);
    if (!start) return (struct text){"", 0};
    start += sizeof marker - 1;
    char *quote = memchr(start, '"', (size_t)(end - start));
    return (struct text){start, quote ? (size_t)(quote - start) : 0};
}

// Stages of a batch

static struct work *find(int state) {
    for (int index = 0; index < maximum_batches; index++) {
        if ((int)works[index].state == state) return &works[index];
    }
    return NULL;
}

// Stores the batch and looks up its devices, in one transaction and round trip.
static void store(PGconn *connection, struct work *work) {
    static struct array users = {.type = text_type};
    empty(&users);
    for (int index = 0; index < work->batch.count; index++) add_text(&users, work->batch.jobs[index].user);
    send_store(connection, &work->batch);
    send_arrays(connection, "lookup", &users, 1);
    if (!PQpipelineSync(connection)) fail("postgres: %s", PQerrorMessage(connection));
    work->state = is_storing;
}

static void end_store(PGconn *connection, struct work *work) {
    take_store(connection, &work->batch);
    PGresult *devices = take_result(connection);
    for (int row = 0; row < PQntuples(devices); row++) {
        struct text token = {PQgetvalue(devices, row, 1), (size_t)PQgetlength(devices, row, 1)};
        start_push(work, &work->batch.jobs[read_int8(devices, row, 0)], token);
    }
    PQclear(devices);
    PQclear(take_result(connection));
    work->state = is_sending;
}

static void record(PGconn *connection, struct work *work) {
    static struct array arrays[] = {{.type = text_type}, {.type = int8_type}, {.type = int4_type}, {.type = text_type}};
    for (int index = 0; index < 4; index++) empty(&arrays[index]);
    for (struct push *push = work->pushes; push; push = push->next) {
        add_text(&arrays[0], push->job->user);
        add_int8(&arrays[1], push->job->version);
        add_int4(&arrays[2], (int32_t)push->status);
        add_text(&arrays[3], provider_id(push));
    }
    send_arrays(connection, "record", arrays, 4);
    work->state = is_recording;
}

static void end_record(PGconn *connection, redisContext *redis, struct work *work) {
    PQclear(take_result(connection));
    append_acknowledgement(redis, stream, &work->batch);
    skip_replies(redis, 2);
    free_batch(&work->batch);
    while (work->pushes) {
        struct push *push = work->pushes;
        work->pushes = push->next;
        push->next = free_pushes;
        free_pushes = push;
    }
    work->state = is_free;
}

// Whether the result of the statement in flight has arrived.
static bool has_result(PGconn *connection) {
    if (!PQconsumeInput(connection)) fail("postgres: %s", PQerrorMessage(connection));
    return !PQisBusy(connection);
}

int main(int argc, char **argv) {
    begin();
    if (argc != 7) fail("usage: floor-push redis postgres stream url ca.pem token");
    stream = argv[3];
    url = argv[4];
    ca_file = argv[5];
    redisContext *redis = open_redis(argv[1]);
    make_group(redis, stream);
    PGconn *stores = open_postgres(argv[2]), *records = open_postgres(argv[2]);
    prepare(stores, "store", store_sql);
    prepare(stores, "lookup", lookup_sql);
    prepare(records, "record", record_sql);
    if (!PQenterPipelineMode(stores)) fail("postgres: no pipeline mode");
    curl_global_init(CURL_GLOBAL_ALL);
    multi = curl_multi_init();
    curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)connections);
    curl_multi_setopt(multi, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)streams);
    static struct buffer credential;
    append_text(&credential, "authorization: Bearer ");
    append(&credential, argv[6], strlen(argv[6]) + 1);
    headers = curl_slist_append(curl_slist_append(NULL, "content-type: application/json"), credential.bytes);
    headers = curl_slist_append(headers, "Expect:");
    puts("ready");

    for (int64_t look_at = 0;;) {
        struct work *storing = find(is_storing), *recording = find(is_recording), *sending = find(is_sending);
        struct work *next = find(is_free);
        bool is_idle = !storing && !recording && !sending;
        if (next && !storing && (is_idle || microseconds(CLOCK_MONOTONIC) >= look_at)) {
            append_read(redis, stream, is_idle ? 1000 : 0);
            take_batch(redis, &next->batch);
            if (next->batch.count > 0) {
                store(stores, next);
                storing = next;
            } else {
                free_batch(&next->batch);
                // While requests are in flight, an empty stream is looked at again after 5 ms.
                look_at = microseconds(CLOCK_MONOTONIC) + 5000;
                if (is_idle) continue;
            }
        }
        int running = 0;
        if (curl_multi_perform(multi, &running) != CURLM_OK) fail("curl: cannot perform");
        int answers = take_answers();
        for (int index = 0; index < maximum_batches && !recording; index++) {
            struct work *work = &works[index];
            if (work->state == is_sending && work->unanswered == 0) record(records, recording = work);
        }
        struct curl_waitfd waits[] = {{.fd = PQsocket(stores), .events = CURL_WAIT_POLLIN},
                                      {.fd = PQsocket(records), .events = CURL_WAIT_POLLIN}};
        if (curl_multi_poll(multi, waits, 2, 5, NULL) != CURLM_OK) fail("curl: cannot poll");
        if (storing && has_result(stores)) end_store(stores, storing);
        if (recording && has_result(records)) end_record(records, redis, recording);
        // Each turn of libcurl walks all requests, so let answers gather, as Carillon does.
        if (running >= grouped_from && answers < grouped_from / 4) usleep(1000);
    }
}
