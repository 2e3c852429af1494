// Carillon · persist.c
// SPDX-License-Identifier: Apache-2.0

// The rate of libpq alone: batches of prepared statements with binary parameters, in pipeline mode
// on one connection, with one transaction and one round trip per batch.
//
//   cc -O2 -I$(pg_config --includedir) -o persist persist.c -lpq
//   ./persist postgresql://… statements
//
// The file holds big-endian words of four bytes: the number of statements; for each statement the
// length of its text, the text, the number of its parameters and their types; then for each batch
// the number of rows, and for each parameter of each statement its length (-1: null) and value.
//
// Prints one JSON line: rows, batches, seconds, rows_per_second.

#include <arpa/inet.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { maximum_statements = 8, maximum_parameters = 64 };

static char *bytes;
static size_t size;
static size_t position;

static int32_t word(void) {
    uint32_t value;
    if (position + sizeof value > size) {
        fprintf(stderr, "persist: the file is truncated\n");
        exit(65);
    }
    memcpy(&value, bytes + position, sizeof value);
    position += sizeof value;
    return (int32_t)ntohl(value);
}

static char *block(int32_t length) {
    if (length < 0 || position + (size_t)length > size) {
        fprintf(stderr, "persist: the file is malformed\n");
        exit(65);
    }
    char *start = bytes + position;
    position += (size_t)length;
    return start;
}

static void read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(66);
    }
    size = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(size);
    if (!bytes || fread(bytes, 1, size, file) != size) {
        perror(path);
        exit(66);
    }
    fclose(file);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fail(PGconn *connection) {
    fprintf(stderr, "persist: %s", PQerrorMessage(connection));
    exit(1);
}

// Reads the results up to the sync point.
static void take_results(PGconn *connection, int statements) {
    for (int index = 0; index < statements; index++) {
        PGresult *result;
        while ((result = PQgetResult(connection))) {
            ExecStatusType status = PQresultStatus(result);
            if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) fail(connection);
            PQclear(result);
        }
    }
    PGresult *sync = PQgetResult(connection);
    if (PQresultStatus(sync) != PGRES_PIPELINE_SYNC) fail(connection);
    PQclear(sync);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: persist connection-string file\n");
        return 64;
    }
    read_file(argv[2]);
    PGconn *connection = PQconnectdb(argv[1]);
    if (PQstatus(connection) != CONNECTION_OK) fail(connection);

    int statements = word();
    int parameters[maximum_statements];
    if (statements < 1 || statements > maximum_statements) return 65;
    for (int index = 0; index < statements; index++) {
        int32_t length = word();
        char *text = block(length);
        char *sql = malloc((size_t)length + 1);
        if (!sql) return 71;
        memcpy(sql, text, (size_t)length);
        sql[length] = 0;
        parameters[index] = word();
        if (parameters[index] < 0 || parameters[index] > maximum_parameters) return 65;
        Oid types[maximum_parameters];
        for (int parameter = 0; parameter < parameters[index]; parameter++) types[parameter] = (Oid)word();
        char name[8];
        snprintf(name, sizeof name, "s%d", index);
        PGresult *result = PQprepare(connection, name, sql, parameters[index], types);
        if (PQresultStatus(result) != PGRES_COMMAND_OK) fail(connection);
        PQclear(result);
        free(sql);
    }
    if (!PQenterPipelineMode(connection)) fail(connection);

    long rows = 0;
    long batches = 0;
    double start = now();
    while (position < size) {
        rows += word();
        batches++;
        for (int index = 0; index < statements; index++) {
            const char *values[maximum_parameters];
            int lengths[maximum_parameters];
            int formats[maximum_parameters];
            for (int parameter = 0; parameter < parameters[index]; parameter++) {
                int32_t length = word();
                // A null pointer means NULL; an empty value needs an address.
                values[parameter] = length < 0 ? NULL : block(length);
                lengths[parameter] = length < 0 ? 0 : length;
                formats[parameter] = 1;
            }
            char name[8];
            snprintf(name, sizeof name, "s%d", index);
            if (!PQsendQueryPrepared(connection, name, parameters[index], values, lengths, formats, 1)) {
                fail(connection);
            }
        }
        if (!PQpipelineSync(connection)) fail(connection);
        take_results(connection, statements);
    }
    double seconds = now() - start;
    printf("{\"rows\":%ld,\"batches\":%ld,\"seconds\":%.3f,\"rows_per_second\":%.0f}\n", rows, batches, seconds,
           (double)rows / seconds);
    PQfinish(connection);
    free(bytes);
    return 0;
}
