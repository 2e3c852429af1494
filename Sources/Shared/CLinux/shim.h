// Carillon · shim.h
// SPDX-License-Identifier: Apache-2.0

// Swift's Glibc module leaves these headers out.
#ifndef CARILLON_CLINUX_H
#define CARILLON_CLINUX_H

#include <malloc.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

// Declared here because the header only does so under _GNU_SOURCE, which the importer does not set for every file.
extern int pthread_setname_np(pthread_t thread, const char *name);

#endif
