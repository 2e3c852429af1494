// Carillon · shim.h
// SPDX-License-Identifier: Apache-2.0

// libcurl's setters and getters are variadic, which Swift does not import. One wrapper for each type that an option
// takes; the caller picks the one that the option's manual page names, since a wrong width corrupts the stack.
#ifndef CARILLON_CCURL_H
#define CARILLON_CCURL_H

#include <curl/curl.h>
#include <netinet/in.h>
#include <string.h>

// Numbers and switches: `long`, never `int`.
static inline CURLcode carillon_easy_set_long(CURL *easy, CURLoption option, long value) {
    return curl_easy_setopt(easy, option, value);
}

// Text, which libcurl copies.
static inline CURLcode carillon_easy_set_string(CURL *easy, CURLoption option, const char *value) {
    return curl_easy_setopt(easy, option, value);
}

// Memory and contexts, which libcurl only refers to: they outlive the transfer.
static inline CURLcode carillon_easy_set_pointer(CURL *easy, CURLoption option, void *value) {
    return curl_easy_setopt(easy, option, value);
}

// A list of header lines, referred to as well.
static inline CURLcode carillon_easy_set_list(CURL *easy, CURLoption option, struct curl_slist *value) {
    return curl_easy_setopt(easy, option, value);
}

// CURLOPT_WRITEFUNCTION and CURLOPT_HEADERFUNCTION, whose types agree.
static inline CURLcode carillon_easy_set_writer(CURL *easy, CURLoption option, curl_write_callback value) {
    return curl_easy_setopt(easy, option, value);
}

// CURLOPT_READFUNCTION.
static inline CURLcode carillon_easy_set_reader(CURL *easy, curl_read_callback value) {
    return curl_easy_setopt(easy, CURLOPT_READFUNCTION, value);
}

// CURLOPT_SEEKFUNCTION.
static inline CURLcode carillon_easy_set_seeker(CURL *easy, curl_seek_callback value) {
    return curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, value);
}

// CURLOPT_XFERINFOFUNCTION.
static inline CURLcode carillon_easy_set_progress(CURL *easy, curl_xferinfo_callback value) {
    return curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, value);
}

// Sizes: `curl_off_t`.
static inline CURLcode carillon_easy_set_offset(CURL *easy, CURLoption option, curl_off_t value) {
    return curl_easy_setopt(easy, option, value);
}

static inline CURLcode carillon_easy_set_opensocket(CURL *easy, curl_opensocket_callback value) {
    return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, value);
}

// Copies the IP address that libcurl is about to connect to; returns its length, 0 if it is none. What libcurl calls a
// `sockaddr` is as long as its family needs.
static inline int carillon_copy_address(const struct curl_sockaddr *address, unsigned char bytes[16]) {
    if (address->family == AF_INET && address->addrlen >= sizeof(struct sockaddr_in)) {
        memcpy(bytes, &((const struct sockaddr_in *)(const void *)&address->addr)->sin_addr, 4);
        return 4;
    }
    if (address->family == AF_INET6 && address->addrlen >= sizeof(struct sockaddr_in6)) {
        memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)&address->addr)->sin6_addr, 16);
        return 16;
    }
    return 0;
}

// CURLINFO_LONG.
static inline long carillon_easy_get_long(CURL *easy, CURLINFO info) {
    long value = 0;
    return curl_easy_getinfo(easy, info, &value) == CURLE_OK ? value : 0;
}

// CURLINFO_PRIVATE: what CURLOPT_PRIVATE set.
static inline void *carillon_easy_get_private(CURL *easy) {
    char *value = NULL;
    return curl_easy_getinfo(easy, CURLINFO_PRIVATE, &value) == CURLE_OK ? value : NULL;
}

static inline CURLMcode carillon_multi_set_long(CURLM *multi, CURLMoption option, long value) {
    return curl_multi_setopt(multi, option, value);
}

#endif
