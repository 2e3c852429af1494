// Carillon · mail.c
// SPDX-License-Identifier: Apache-2.0

// The rate of libcurl alone: e-mails to a relay over kept connections, each with its own thread,
// because libcurl's SMTP blocks until an e-mail is answered.
//
//   cc -O2 -pthread -o mail mail.c -lcurl
//   ./mail -n 20000 -c 16 -C ca.pem smtp://user:password@127.0.0.1:587
//
// Prints one JSON line: mails, connections, failed, seconds, mails_per_second.

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { text_size = 2400, maximum_connections = 256 };

static const char *url, *ca_file;
static atomic_long left, failed;

// An e-mail as large as Carillon's: a header, a plain text part and an HTML part.
struct mail {
    char bytes[4096];
    size_t length, position;
};

static void fill(struct mail *mail, long number) {
    size_t used = (size_t)snprintf(
        mail->bytes, sizeof mail->bytes,
        "From: \"Yardstick\" <notices@example.com>\r\nTo: plain-%ld@example.com\r\nSubject: Payment received\r\n"
        "Date: Sat, 21 Nov 2026 10:00:00 +0000\r\nMessage-ID: <%ld@example.com>\r\nMIME-Version: 1.0\r\n"
        "Content-Type: multipart/alternative; boundary=\"=_b\"\r\n\r\n"
        "--=_b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
        "EUR 40 from Ada\r\n"
        "--=_b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n",
        number, number);
    for (int line = 0; line < text_size / 76; line++) {
        memset(mail->bytes + used, 'x', 74);
        memcpy(mail->bytes + used + 74, "\r\n", 2);
        used += 76;
    }
    static const char end[] = "--=_b--\r\n";
    memcpy(mail->bytes + used, end, sizeof end - 1);
    mail->length = used + sizeof end - 1;
    mail->position = 0;
}

static size_t give(char *buffer, size_t size, size_t count, void *context) {
    struct mail *mail = context;
    size_t wanted = mail->length - mail->position;
    if (wanted > size * count) wanted = size * count;
    memcpy(buffer, mail->bytes + mail->position, wanted);
    mail->position += wanted;
    return wanted;
}

static void *work(void *context) {
    (void)context;
    struct mail mail;
    CURL *easy = curl_easy_init();
    if (!easy) exit(70);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_USE_SSL, (long)CURLUSESSL_ALL);
    curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy, CURLOPT_MAIL_FROM, "<notices@example.com>");
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, give);
    curl_easy_setopt(easy, CURLOPT_READDATA, &mail);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, 30000L);
    for (long number; (number = atomic_fetch_sub(&left, 1)) > 0;) {
        char address[64];
        snprintf(address, sizeof address, "<plain-%ld@example.com>", number);
        struct curl_slist *recipients = curl_slist_append(NULL, address);
        fill(&mail, number);
        curl_easy_setopt(easy, CURLOPT_MAIL_RCPT, recipients);
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)mail.length);
        if (curl_easy_perform(easy) != CURLE_OK) atomic_fetch_add(&failed, 1);
        curl_slist_free_all(recipients);
    }
    curl_easy_cleanup(easy);
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    long mails = 20000;
    long connections = 16;
    int option;
    while ((option = getopt(argc, argv, "n:c:C:")) != -1) {
        switch (option) {
        case 'n': mails = atol(optarg); break;
        case 'c': connections = atol(optarg); break;
        case 'C': ca_file = optarg; break;
        default: return 64;
        }
    }
    if (optind + 1 != argc || !ca_file || mails < 1 || connections < 1 || connections > maximum_connections) return 64;
    url = argv[optind];
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return 70;
    atomic_store(&left, mails);
    pthread_t threads[maximum_connections];
    double start = now();
    for (long index = 0; index < connections; index++) {
        if (pthread_create(&threads[index], NULL, work, NULL) != 0) return 70;
    }
    for (long index = 0; index < connections; index++) pthread_join(threads[index], NULL);
    double seconds = now() - start;
    long lost = atomic_load(&failed);
    printf("{\"mails\":%ld,\"connections\":%ld,\"failed\":%ld,\"seconds\":%.6f,\"mails_per_second\":%.3f}\n", mails,
           connections, lost, seconds, (double)mails / seconds);
    return lost == 0 ? 0 : 1;
}
