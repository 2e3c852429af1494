// Carillon · transfer.c
// SPDX-License-Identifier: Apache-2.0

// The rate of libcurl's multi interface alone: a closed loop of POSTs over one HTTP/2 connection,
// driven by one thread.
//
//   cc -O2 -o transfer transfer.c -lcurl
//   ./transfer -n 100000 -c 100 -C ca.pem https://localhost:8443/
//
// Prints one JSON line: requests, streams, failed, seconds, requests_per_second.

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { body_size = 400, maximum_streams = 1000 };

static size_t discard(char *bytes, size_t size, size_t count, void *context) {
    (void)bytes;
    (void)context;
    return size * count;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static CURL *prepare(const char *url, const char *ca_file, const char *body, struct curl_slist *headers) {
    CURL *easy = curl_easy_init();
    if (!easy) return NULL;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)body_size);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, 30000L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, discard);
    return easy;
}

int main(int argc, char **argv) {
    long requests = 100000;
    long streams = 100;
    const char *ca_file = NULL;
    int option;
    while ((option = getopt(argc, argv, "n:c:C:")) != -1) {
        switch (option) {
        case 'n': requests = atol(optarg); break;
        case 'c': streams = atol(optarg); break;
        case 'C': ca_file = optarg; break;
        default: return 64;
        }
    }
    if (optind >= argc || !ca_file || requests < 1 || streams < 1 || streams > maximum_streams) {
        fprintf(stderr, "usage: transfer -n requests -c streams -C ca.pem https-url\n");
        return 64;
    }

    curl_global_init(CURL_GLOBAL_ALL);
    CURLM *multi = curl_multi_init();
    curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, 1L);
    curl_multi_setopt(multi, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)maximum_streams);

    char body[body_size];
    memset(body, 'x', sizeof body);
    struct curl_slist *headers = curl_slist_append(NULL, "content-type: application/json");
    headers = curl_slist_append(headers, "Expect:");

    static CURL *easies[maximum_streams];
    long started = 0;
    double start = now();
    for (; started < streams && started < requests; started++) {
        easies[started] = prepare(argv[optind], ca_file, body, headers);
        curl_multi_add_handle(multi, easies[started]);
    }

    long ended = 0;
    long failed = 0;
    while (ended < requests) {
        int running = 0;
        if (curl_multi_perform(multi, &running) != CURLM_OK) return 70;
        CURLMsg *message;
        int left;
        while ((message = curl_multi_info_read(multi, &left))) {
            if (message->msg != CURLMSG_DONE) continue;
            long status = 0;
            CURL *easy = message->easy_handle;
            curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
            if (message->data.result != CURLE_OK || status == 0) failed++;
            ended++;
            curl_multi_remove_handle(multi, easy);
            if (started < requests) {
                curl_multi_add_handle(multi, easy);
                started++;
            }
        }
        if (ended < requests && curl_multi_poll(multi, NULL, 0, 1000, NULL) != CURLM_OK) return 70;
    }
    double seconds = now() - start;

    printf("{\"requests\":%ld,\"streams\":%ld,\"failed\":%ld,\"seconds\":%.3f,\"requests_per_second\":%.0f}\n", requests,
           streams, failed, seconds, (double)requests / seconds);

    for (long index = 0; index < streams && easies[index]; index++) {
        curl_multi_remove_handle(multi, easies[index]);
        curl_easy_cleanup(easies[index]);
    }
    curl_slist_free_all(headers);
    curl_multi_cleanup(multi);
    curl_global_cleanup();
    return failed == 0 ? 0 : 1;
}
