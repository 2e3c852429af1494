// Carillon · shim.h
// SPDX-License-Identifier: Apache-2.0

// libcurl's setters and getters are variadic, which Swift does not import. There is one wrapper for
// each argument type; the caller picks the type that the option's manual page names, since a wrong
// width corrupts the stack.
#ifndef CARILLON_CCURL_H
#define CARILLON_CCURL_H

#include <curl/curl.h>
#include <netinet/in.h>
#include <string.h>

// Options that take numbers and switches: `long`, never `int`.
static inline CURLcode carillon_easy_set_long(CURL *easy, CURLoption option, long value) {
    return curl_easy_setopt(easy, option, value);
}

// Options that take text; libcurl copies it.
static inline CURLcode carillon_easy_set_string(CURL *easy, CURLoption option, const char *value) {
    return curl_easy_setopt(easy, option, value);
}

// Options that take memory and contexts; libcurl keeps the pointer, so both must outlive the
// transfer.
static inline CURLcode carillon_easy_set_pointer(CURL *easy, CURLoption option, void *value) {
    return curl_easy_setopt(easy, option, value);
}

// Options that take a list of lines; libcurl keeps the pointer, so it must outlive the transfer.
static inline CURLcode carillon_easy_set_list(CURL *easy, CURLoption option, struct curl_slist *value) {
    return curl_easy_setopt(easy, option, value);
}

// CURLOPT_WRITEFUNCTION and CURLOPT_HEADERFUNCTION, which share a type.
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

// Options that take sizes: `curl_off_t`.
static inline CURLcode carillon_easy_set_offset(CURL *easy, CURLoption option, curl_off_t value) {
    return curl_easy_setopt(easy, option, value);
}

static inline CURLcode carillon_easy_set_opensocket(CURL *easy, curl_opensocket_callback value) {
    return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, value);
}

static inline CURLcode carillon_easy_set_sockopt(CURL *easy, curl_sockopt_callback value) {
    return curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, value);
}

// Copies the IP address that libcurl is about to connect to; returns its length, or 0 for other
// families. The casts are sound: `addr` is as long as its family needs, which `addrlen` confirms.
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

// CURLINFO_OFF_T.
static inline curl_off_t carillon_easy_get_offset(CURL *easy, CURLINFO info) {
    curl_off_t value = 0;
    return curl_easy_getinfo(easy, info, &value) == CURLE_OK ? value : 0;
}

// CURLINFO_PRIVATE, the pointer set with CURLOPT_PRIVATE.
static inline void *carillon_easy_get_private(CURL *easy) {
    char *value = NULL;
    return curl_easy_getinfo(easy, CURLINFO_PRIVATE, &value) == CURLE_OK ? value : NULL;
}

static inline CURLMcode carillon_multi_set_long(CURLM *multi, CURLMoption option, long value) {
    return curl_multi_setopt(multi, option, value);
}

#endif
