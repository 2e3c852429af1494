// Carillon · load.c
// SPDX-License-Identifier: Apache-2.0

// The load of `deploy/bench floor`, for Carillon and the floor alike: appends jobs to a stream,
// and holds a native WebSocket for each user, which counts notifications and answers pings. It
// leaves the cores to the programs that are measured.
//
//   cc -O2 -pthread -o floor-load load.c -lhiredis -lpq
//   ./floor-load redis://127.0.0.1:6379/1 carillon:jobs PORT users 2000@500 60000
//
// The file has a line for each user: name and token. Each further argument is a phase: the number
// of jobs, and the jobs a second unless they come as fast as possible.
//
// Prints `ready` when all sockets are open. Each SIGUSR1 starts the next phase, after which a JSON
// line says: phase (from 1), jobs, seconds from the first XADD to the last frame, and p50_ms and
// p99_ms from XADD to the socket.

#include "floor.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

enum { maximum_users = 20000, maximum_opening = 200, maximum_jobs = 2000000, maximum_phases = 8 };

struct client {
    int descriptor;
    bool is_agreed, is_open;
    struct buffer input;
    char name[128];
};

struct phase {
    long jobs;
    double rate;
};

static struct client clients[maximum_users];
static int users, opened;
static const char *redis_url, *stream;
static double *latencies;
static long frames;

// Jobs

static void append_job(redisContext *redis, long number) {
    char data[64];
    long long now = microseconds(CLOCK_REALTIME);
    int length = snprintf(data, sizeof data, "{\"sent_us\":%lld,\"invoice\":\"i9\"}", now);
    const char *words[] = {"XADD", stream, "*", "user", clients[number % users].name, "type", "payment_received",
                           "data", data, "title", "Payment received", "body", "EUR 40 from Ada"};
    size_t lengths[13];
    for (int index = 0; index < 13; index++) lengths[index] = index == 8 ? (size_t)length : strlen(words[index]);
    redisAppendCommandArgv(redis, 13, words, lengths);
}

static void *produce(void *context) {
    struct phase phase = *(struct phase *)context;
    redisContext *redis = open_redis(redis_url);
    int64_t start = microseconds(CLOCK_MONOTONIC);
    for (long done = 0; done < phase.jobs;) {
        if (phase.rate > 0) {
            int64_t due = start + (int64_t)((double)done / phase.rate * 1e6);
            struct timespec moment = {due / 1000000, due % 1000000 * 1000};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL);
        }
        int batch = phase.rate > 0 ? 1 : phase.jobs - done < batch_size ? (int)(phase.jobs - done) : batch_size;
        for (int index = 0; index < batch; index++) append_job(redis, done++);
        skip_replies(redis, batch);
    }
    redisFree(redis);
    return NULL;
}

// Sockets

static void open_client(struct client *client, int port, const char *token) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    client->descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (client->descriptor < 0 || connect(client->descriptor, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("cannot connect: %s", strerror(errno));
    }
    setsockopt(client->descriptor, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    dprintf(client->descriptor,
            "GET /v1/socket HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "authorization: Bearer %s\r\n\r\n",
            port, token);
}

static bool begins(const char *bytes, size_t length, const char *text) {
    return length >= strlen(text) && memcmp(bytes, text, strlen(text)) == 0;
}

static void take_text(struct client *client, const char *bytes, size_t length) {
    static const char marker[] = "\"sent_us\":";
    if (begins(bytes, length, "{\"type\":\"sync\"")) {
        // A gateway repeats it when a socket has fallen behind; its frames are then not counted.
        if (client->is_open) fail("a socket fell behind");
        client->is_open = true;
        opened++;
    } else if (begins(bytes, length, "{\"type\":\"notification\"")) {
        char *sent = memmem(bytes, length, marker, sizeof marker - 1);
        if (!sent) fail("a notification without sent_us");
        // The digits end before the message does.
        int64_t moment = strtoll(sent + sizeof marker - 1, NULL, 10);
        if (frames == maximum_jobs) fail("too many notifications");
        latencies[frames++] = (double)(microseconds(CLOCK_REALTIME) - moment) / 1000;
    }
}

// Takes the frame at the start of the input; returns its length, or 0 if it is incomplete.
static size_t take_message(struct client *client, char *bytes, size_t size) {
    unsigned char *head = (unsigned char *)bytes;
    size_t start = 2;
    if (size < 2) return 0;
    size_t length = head[1];
    if (length == 127) fail("a frame is too long");
    if (length == 126) {
        if (size < 4) return 0;
        length = (size_t)head[2] << 8 | head[3];
        start = 4;
    }
    if (size < start + length) return 0;
    int opcode = head[0] & 0x0F;
    if (opcode == 8) fail("a socket was closed: %.*s", (int)length, bytes + start);
    if (opcode == 1) take_text(client, bytes + start, length);
    if (opcode == 9 && length < 126) {
        // A mask of zeros leaves the payload as it is.
        char pong[131] = {(char)0x8A, (char)(0x80 | length)};
        memcpy(pong + 6, bytes + start, length);
        if (write(client->descriptor, pong, 6 + length) != (ssize_t)(6 + length)) fail("cannot write a pong");
    }
    return start + length;
}

static void read_client(struct client *client) {
    ssize_t count = read(client->descriptor, reserve(&client->input, 16384), 16384);
    if (count <= 0) fail("a socket was closed");
    client->input.length += (size_t)count;
    size_t position = 0;
    if (!client->is_agreed) {
        char *end = memmem(client->input.bytes, client->input.length, "\r\n\r\n", 4);
        if (!end) return;
        if (!begins(client->input.bytes, client->input.length, "HTTP/1.1 101")) {
            fail("no upgrade: %.*s", (int)client->input.length, client->input.bytes);
        }
        client->is_agreed = true;
        position = (size_t)(end + 4 - client->input.bytes);
    }
    size_t taken;
    do {
        taken = take_message(client, client->input.bytes + position, client->input.length - position);
        position += taken;
    } while (taken > 0);
    drop(&client->input, position);
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void report(int number, const struct phase *phase, double seconds) {
    qsort(latencies, (size_t)frames, sizeof *latencies, by_value);
    printf("{\"phase\":%d,\"jobs\":%ld,\"seconds\":%.6f,\"p50_ms\":%.3f,\"p99_ms\":%.3f}\n", number, phase->jobs,
           seconds, latencies[frames / 2], latencies[frames * 99 / 100]);
    frames = 0;
}

static void watch(int poll, int descriptor, void *source) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event) != 0) fail("epoll: %s", strerror(errno));
}

// Waits until all sockets so far are open.
static void finish_opening(int poll) {
    while (opened < users) {
        struct epoll_event events[256];
        int count = epoll_wait(poll, events, 256, -1);
        for (int index = 0; index < count; index++) read_client(events[index].data.ptr);
    }
}

static void open_clients(const char *path, int port, int poll) {
    FILE *file = fopen(path, "r");
    if (!file) fail("%s: %s", path, strerror(errno));
    char token[4096];
    while (users < maximum_users && fscanf(file, "%127s %4095s", clients[users].name, token) == 2) {
        open_client(&clients[users], port, token);
        watch(poll, clients[users].descriptor, &clients[users]);
        if (++users % maximum_opening == 0) finish_opening(poll);
    }
    finish_opening(poll);
    fclose(file);
    if (users == 0) fail("%s: no users", path);
}

int main(int argc, char **argv) {
    begin();
    if (argc < 6 || argc - 5 > maximum_phases) fail("usage: floor-load redis stream port users phase…");
    redis_url = argv[1];
    stream = argv[2];
    latencies = malloc(maximum_jobs * sizeof *latencies);
    if (!latencies) fail("no memory");
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int poll = epoll_create1(0), next = signalfd(-1, &signals, 0);
    open_clients(argv[4], atoi(argv[3]), poll);
    watch(poll, next, &next);
    puts("ready");

    struct phase phase = {0};
    pthread_t producer;
    int64_t start = 0;
    for (int number = 0;;) {
        struct epoll_event events[256];
        int count = epoll_wait(poll, events, 256, -1);
        for (int index = 0; index < count; index++) {
            if (events[index].data.ptr != &next) {
                read_client(events[index].data.ptr);
                continue;
            }
            struct signalfd_siginfo information;
            if (read(next, &information, sizeof information) < 0) fail("signalfd: %s", strerror(errno));
            if (phase.jobs > 0 || 5 + number >= argc) fail("a signal during a phase, or after the last");
            const char *text = argv[5 + number++];
            if (sscanf(text, "%ld@%lf", &phase.jobs, &phase.rate) < 1 || phase.jobs < 1) fail("%s: no phase", text);
            start = microseconds(CLOCK_MONOTONIC);
            if (pthread_create(&producer, NULL, produce, &phase) != 0) fail("no thread");
        }
        if (phase.jobs > 0 && frames == phase.jobs) {
            double seconds = (double)(microseconds(CLOCK_MONOTONIC) - start) / 1e6;
            pthread_join(producer, NULL);
            report(number, &phase, seconds);
            phase = (struct phase){0};
        }
    }
}
