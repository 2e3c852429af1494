// Carillon · gateway.c
// SPDX-License-Identifier: Apache-2.0

// The floor of a gateway: gets the frames of floor-dispatcher by SUBSCRIBE, writes them to its
// users' WebSockets with a ping after them, and stores the pongs as proofs, in batches. One thread
// and one epoll set.
//
// It accepts any upgrade, takes the bearer token as the user's name, and limits and replays
// nothing.
//
//   cc -O2 -I/usr/include/postgresql -o floor-gateway gateway.c -lhiredis -lpq
//   ./floor-gateway [-b] redis://127.0.0.1:6379/1 postgresql://…
//
// With -b it requests no proof.
//
// Prints `ready http://127.0.0.1:PORT`, and `proven N` after each commit, with the number of
// notifications that are proven so far.

#include "floor.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { table_size = 1 << 16, proof_batch = 256, proof_pause = 20 };

struct socket {
    int descriptor;
    bool is_open, is_touched;
    // The last version written, and the last one proven.
    int64_t version, proven;
    struct buffer input, output;
    char user[128];
    size_t user_length;
    struct socket *next, *next_touched;
};

static const char agreement[] =
    "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

static const char record_sql[] =
    "INSERT INTO floor.receipts (user_id, version) SELECT * FROM unnest($1::text[], $2::int8[])";

// The sockets, in buckets by a hash of the user.
static struct socket *table[table_size];
static struct socket *touched;
static bool proves = true;
static PGconn *postgres;
// Proofs that wait for the statement in flight, and when the first of them came.
static struct array proofs[2] = {{.type = text_type}, {.type = int8_type}};
static int64_t first_proof;
static bool is_recording;
static int64_t waiting, recording, recorded;

static struct socket **bucket(const char *user, size_t length) {
    uint64_t hash = 14695981039346656037u;
    for (size_t index = 0; index < length; index++) hash = (hash ^ (unsigned char)user[index]) * 1099511628211u;
    return &table[(hash ^ hash >> 32) % table_size];
}

// Sockets

// Appends a final frame (RFC 6455, section 5.2).
static void append_message(struct buffer *output, int opcode, const char *bytes, size_t length) {
    unsigned char head[4] = {(unsigned char)(0x80 | opcode), (unsigned char)length};
    if (length > 65535) fail("a frame of %zu bytes", length);
    if (length >= 126) {
        head[1] = 126;
        head[2] = (unsigned char)(length >> 8);
        head[3] = (unsigned char)length;
    }
    append(output, head, length < 126 ? 2 : 4);
    append(output, bytes, length);
}

static void flush_output(struct socket *socket) {
    ssize_t written = write(socket->descriptor, socket->output.bytes, socket->output.length);
    // A yardstick has clients that read.
    if (written != (ssize_t)socket->output.length) fail("a client is too slow or gone");
    socket->output.length = 0;
}

static void open_socket(struct socket *socket) {
    static const char credential[] = "authorization: Bearer ";
    append(&socket->input, "", 1);
    char *user = strstr(socket->input.bytes, credential);
    if (!user) fail("a request without a token");
    user += sizeof credential - 1;
    socket->user_length = strcspn(user, "\r");
    if (socket->user_length > sizeof socket->user) fail("a user's name is too long");
    memcpy(socket->user, user, socket->user_length);
    struct socket **place = bucket(socket->user, socket->user_length);
    socket->next = *place;
    *place = socket;
    socket->is_open = true;
    socket->input.length = 0;
    append_text(&socket->output, agreement);
    append_message(&socket->output, 1, "{\"type\":\"sync\"}", 15);
    flush_output(socket);
}

static void note_proof(struct socket *socket, int64_t version) {
    if (version <= socket->proven) return;
    if (proofs[0].count == 0) first_proof = microseconds(CLOCK_MONOTONIC);
    add_text(&proofs[0], (struct text){socket->user, socket->user_length});
    add_int8(&proofs[1], version);
    waiting += version - socket->proven;
    socket->proven = version;
}

// Returns whether a masked frame was taken from the input.
static bool take_message(struct socket *socket) {
    unsigned char *bytes = (unsigned char *)socket->input.bytes;
    if (socket->input.length < 6) return false;
    size_t length = bytes[1] & 0x7F;
    if (length > 125) fail("a client's frame is too long");
    if (socket->input.length < length + 6) return false;
    if ((bytes[0] & 0x0F) == 10 && length == 8) {
        uint64_t version = 0;
        for (int index = 0; index < 8; index++) version = version << 8 | (bytes[6 + index] ^ bytes[2 + index % 4]);
        note_proof(socket, (int64_t)version);
    }
    drop(&socket->input, length + 6);
    return true;
}

static void read_socket(struct socket *socket) {
    ssize_t count = read(socket->descriptor, reserve(&socket->input, 512), 512);
    if (count <= 0) {
        // The load ends by closing; its sockets get no more frames.
        close(socket->descriptor);
        return;
    }
    socket->input.length += (size_t)count;
    if (socket->is_open) {
        while (take_message(socket)) continue;
    } else if (memmem(socket->input.bytes, socket->input.length, "\r\n\r\n", 4)) {
        open_socket(socket);
    }
}

static void accept_sockets(int poll, int listener) {
    for (int descriptor; (descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        struct socket *socket = calloc(1, sizeof *socket);
        if (!socket) fail("no memory");
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        socket->descriptor = descriptor;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = socket};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event) != 0) fail("epoll: %s", strerror(errno));
    }
}

// Frames

static uint64_t integer(const unsigned char **bytes, int size) {
    uint64_t value = 0;
    while (size-- > 0) value = value << 8 | *(*bytes)++;
    return value;
}

// Puts the frames of a message into the output of their users' sockets.
static void deliver(const char *message, size_t size) {
    const unsigned char *bytes = (const unsigned char *)message, *end = bytes + size;
    while (bytes < end) {
        size_t user_length = (size_t)integer(&bytes, 2);
        const char *user = (const char *)bytes;
        bytes += user_length;
        int64_t version = (int64_t)integer(&bytes, 8);
        size_t length = (size_t)integer(&bytes, 4);
        for (struct socket *socket = *bucket(user, user_length); socket; socket = socket->next) {
            if (socket->user_length != user_length || memcmp(socket->user, user, user_length) != 0) continue;
            append_message(&socket->output, 1, (const char *)bytes, length);
            socket->version = version;
            if (socket->is_touched) continue;
            socket->is_touched = true;
            socket->next_touched = touched;
            touched = socket;
        }
        bytes += length;
    }
}

static void read_redis(redisContext *redis) {
    if (redisBufferRead(redis) != REDIS_OK) fail("redis: %s", redis->errstr);
    for (;;) {
        void *next = NULL;
        if (redisGetReplyFromReader(redis, &next) != REDIS_OK) fail("redis: %s", redis->errstr);
        redisReply *reply = next;
        if (!reply) break;
        redisReply *message = reply->elements == 3 ? reply->element[2] : NULL;
        if (message && message->type == REDIS_REPLY_STRING) deliver(message->str, message->len);
        freeReplyObject(reply);
    }
    for (; touched; touched = touched->next_touched) {
        unsigned char version[8];
        for (int index = 0; index < 8; index++) version[index] = (unsigned char)(touched->version >> (56 - 8 * index));
        if (proves) append_message(&touched->output, 9, (const char *)version, 8);
        flush_output(touched);
        touched->is_touched = false;
    }
}

// Proofs

static void record(void) {
    send_arrays(postgres, "record", proofs, 2);
    empty(&proofs[0]);
    empty(&proofs[1]);
    recording = waiting;
    waiting = 0;
    is_recording = true;
}

static void end_record(void) {
    if (!PQconsumeInput(postgres)) fail("postgres: %s", PQerrorMessage(postgres));
    if (!is_recording || PQisBusy(postgres)) return;
    PQclear(take_result(postgres));
    is_recording = false;
    recorded += recording;
    printf("proven %lld\n", (long long)recorded);
}

// Records the proofs that wait, if they are enough or have waited long enough; returns the
// milliseconds until then.
static int record_if_due(void) {
    if (is_recording || !proves || proofs[0].count == 0) return -1;
    int64_t rest = proof_pause - (microseconds(CLOCK_MONOTONIC) - first_proof) / 1000;
    if (proofs[0].count < proof_batch && rest > 0) return (int)rest;
    record();
    return -1;
}

static int listen_on_any_port(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 4096) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        fail("cannot listen: %s", strerror(errno));
    }
    printf("ready http://127.0.0.1:%d\n", ntohs(address.sin_port));
    return listener;
}

int main(int argc, char **argv) {
    begin();
    for (int option; (option = getopt(argc, argv, "b")) != -1;) {
        if (option != 'b') return 64;
        proves = false;
    }
    if (optind + 2 != argc) fail("usage: floor-gateway [-b] redis postgres");
    redisContext *redis = open_redis(argv[optind]);
    freeReplyObject(redisCommand(redis, "SUBSCRIBE %s", channel));
    if (proves) {
        postgres = open_postgres(argv[optind + 1]);
        prepare(postgres, "record", record_sql);
    }
    empty(&proofs[0]);
    empty(&proofs[1]);
    int poll = epoll_create1(0), listener = listen_on_any_port();
    int others[] = {listener, redis->fd, proves ? PQsocket(postgres) : -1};
    for (int index = 0; index < 3; index++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &others[index]};
        if (others[index] < 0) continue;
        if (epoll_ctl(poll, EPOLL_CTL_ADD, others[index], &event) != 0) fail("epoll: %s", strerror(errno));
    }
    for (;;) {
        struct epoll_event events[256];
        int count = epoll_wait(poll, events, 256, record_if_due());
        for (int index = 0; index < count; index++) {
            void *source = events[index].data.ptr;
            if (source == &others[0]) accept_sockets(poll, listener);
            else if (source == &others[1]) read_redis(redis);
            else if (source == &others[2]) end_record();
            else read_socket(source);
        }
    }
}
